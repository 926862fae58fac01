//! gRPC behind limits: tonic's client over the layer. A server that says `RESOURCE_EXHAUSTED` pauses everybody who comes next for
//! as long as its `grpc-retry-pushback-ms` asks for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes};
use http_body_util::{BodyExt, Full};
use reqwest_throttle::{Limiter, ThrottleLayer};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};
use tower::{Layer, service_fn};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // In the place of a channel to somebody's server, which refuses the second call.
    let calls = Arc::new(AtomicUsize::new(0));
    let channel = service_fn(move |_: http::Request<Body>| {
        let refuses = calls.fetch_add(1, Relaxed) == 1;
        async move { Ok::<_, Status>(if refuses { exhausted() } else { pong() }) }
    });
    let service = ThrottleLayer::new(Limiter::new("100/s, 8 in flight")?).layer(channel);
    let mut client = tonic::client::Grpc::new(service);

    let began = Instant::now();
    for nth in 1..=4 {
        client.ready().await.map_err(|error| error.to_string())?;
        let path = http::uri::PathAndQuery::from_static("/example.Pinger/Ping");
        match client.unary(Request::new(Bytes::from_static(b"ping")), path, Raw).await {
            Ok(answer) => println!("{nth}: {:?} after {:.1?}", answer.into_inner(), began.elapsed()),
            Err(status) => println!("{nth}: {:?} after {:.1?}", status.code(), began.elapsed()),
        }
    }
    assert!(began.elapsed() >= Duration::from_secs(1), "the third waits for as long as the server asked");
    Ok(())
}

/// An answer that ends well: one message, and a status of zero in its trailers.
fn pong() -> http::Response<Body> {
    answer(&[], Bytes::from_static(b"\0\0\0\0\x04pong"), &[("grpc-status", "0")])
}

/// One without a message: the status comes in the head.
fn exhausted() -> http::Response<Body> {
    answer(&[("grpc-status", "8"), ("grpc-retry-pushback-ms", "1000")], Bytes::new(), &[])
}

type Fields = [(&'static str, &'static str)];

fn answer(head: &Fields, message: Bytes, trailers: &Fields) -> http::Response<Body> {
    let fields = |fields: &Fields| -> http::HeaderMap {
        let field = |(name, value): &(&'static str, &'static str)| {
            (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
        };
        fields.iter().map(field).collect()
    };
    let trailers = (!trailers.is_empty()).then(|| Ok(fields(trailers)));
    let body = Full::new(message).with_trailers(async move { trailers });
    let mut response = http::Response::new(Body::new(body));
    *response.headers_mut() = fields(head);
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
    response
}

/// Messages as bytes, for want of a schema.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
