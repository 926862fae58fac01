//! What tower's layer adds to a plain function, above the decision and the end of its permit.

use std::convert::Infallible;
use std::hint::black_box;
use std::time::Instant;

use http::{Request, Response};
use reqwest_throttle::{Context, Limiter, ThrottleLayer};
use tokio::runtime::Builder;
use tower::{Layer, Service, service_fn};

use crate::median;

const ROUNDS: usize = 21;
const CALLS: u32 = 20_000;
const LIMITS: &str = "1000000000/s burst 1000000000";

pub fn run() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let (limiter, context) = (Limiter::new(LIMITS).unwrap(), Context::new());
    let mut plain =
        service_fn(async |request: Request<String>| Ok::<_, Infallible>(Response::new(black_box(request).into_body())));
    let mut layered = ThrottleLayer::new(Limiter::new(LIMITS).unwrap()).layer(plain);
    let request = || Request::get("http://host/").body(String::new()).unwrap();
    let mut took = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..CALLS {
                let permit = limiter.acquire(&context).await.unwrap();
                black_box(plain.call(request()).await.unwrap());
                drop(permit);
            }
            took[0].push(nanos(began));
            let began = Instant::now();
            for _ in 0..CALLS {
                black_box(layered.call(request()).await.unwrap());
            }
            took[1].push(nanos(began));
            let began = Instant::now();
            for _ in 0..CALLS {
                black_box(plain.call(request()).await.unwrap());
            }
            took[2].push(nanos(began));
        });
    }
    let [by_hand, layered, plain] = took.map(median);
    println!("a function that answers at once: ns in the median");
    println!("  by itself {plain:.0}, with a permit round it {by_hand:.0}, behind the layer {layered:.0}");
    println!("  the layer above the permit: {:.0}", layered - by_hand);
}

fn nanos(began: Instant) -> f64 {
    began.elapsed().as_nanos() as f64 / f64::from(CALLS)
}
