//! What the limiter costs beside its peers: `./test peers`. All in one run and in turns; read the ratios.

#![allow(clippy::pedantic)]

mod at_once;
mod client;
mod counted;
mod crowd;
mod front_doors;
mod go;

#[global_allocator]
static ALLOCATOR: counted::Counted = counted::Counted;

/// Of as many as there are.
fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    at_once::run();
    front_doors::run();
    client::run();
    crowd::run();
}
