//! What the limiter costs beside its peers: `./test peers`. All in one run and in turns; read the ratios.

#![allow(clippy::pedantic)]

mod at_once;
mod client;
mod counted;
mod crowd;
mod go;

#[global_allocator]
static ALLOCATOR: counted::Counted = counted::Counted;

fn main() {
    at_once::run();
    client::run();
    crowd::run();
}
