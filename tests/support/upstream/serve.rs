//! How is a request served? Connections, and the visit of each request.

use std::convert::Infallible;
use std::future::{Future, pending};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use socket2::{SockRef, Socket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::answer::{Act, Answer, Reply};
use super::books::{Books, Fate, Jitter};
use super::clock::Clock;
use super::outgoing::Outgoing;

/// More streams than a test opens, and more than it cancels before they are looked at.
const HTTP2_CAP: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) clock: Clock,
    books: Mutex<Books>,
    crew: Mutex<Crew>,
}

#[derive(Debug, Default)]
struct Crew {
    tasks: JoinSet<()>,
    panicked: bool,
    stopped: bool,
}

impl Shared {
    pub(super) fn new(clock: Clock, books: Books) -> Arc<Self> {
        let (books, crew) = (Mutex::new(books), Mutex::default());
        Arc::new(Self { clock, books, crew })
    }

    /// The books, and the time. It is read under the lock so that it never goes back between calls.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Books, Duration) -> T) -> T {
        let mut books = lock(&self.books);
        let now = self.clock.now();
        work(&mut books, now)
    }

    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut crew = lock(&self.crew);
        crew.bury();
        if !crew.stopped {
            crew.tasks.spawn(task);
        }
    }

    /// Stops every task. Says whether one of them had panicked.
    pub(super) fn stop(&self) -> bool {
        let mut crew = lock(&self.crew);
        crew.bury();
        crew.stopped = true;
        crew.tasks.abort_all();
        crew.panicked
    }
}

impl Crew {
    /// Lets go of the tasks that are done.
    fn bury(&mut self) {
        while let Some(end) = self.tasks.try_join_next() {
            self.panicked |= end.is_err_and(|error| error.is_panic());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs hyper's own tasks (one per HTTP/2 request) in the crew.
#[derive(Clone)]
struct InCrew(Arc<Shared>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for InCrew {
    fn execute(&self, task: F) {
        self.0.spawn(task);
    }
}

/// Accepts connections until the server stops.
pub(super) async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => shared.spawn(talk(shared.clone(), stream)),
            // Out of descriptors, or the client has left again.
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

async fn talk(shared: Arc<Shared>, stream: TcpStream) {
    let line = Arc::new(Line::open(&shared, &stream));
    let service = service_fn(|request| {
        let (shared, line) = (shared.clone(), line.clone());
        async move { Ok::<_, Infallible>(serve(shared, line, request).await) }
    });
    let mut server = auto::Builder::new(InCrew(shared.clone()));
    // The limits refuse, and the client is slow or not by itself: HTTP/2's own caps stay out of it.
    let mut http2 = server.http2();
    http2.max_concurrent_streams(HTTP2_CAP);
    http2.max_pending_accept_reset_streams(HTTP2_CAP as usize);
    let connection = server.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // An error here is a client that went away.
        _ = connection => drop(line.let_go()),
        () = line.cut.notified() => {}
    }
}

/// One connection, seen from its requests.
struct Line {
    shared: Arc<Shared>,
    number: u64,
    /// The connection's socket once more. The socket closes when the last of both is gone.
    socket: Mutex<Option<Socket>>,
    cut: Notify,
}

impl Line {
    fn open(shared: &Arc<Shared>, stream: &TcpStream) -> Self {
        // Fails only if the client has left again; then there is nothing to hurry or to reset.
        let _ = stream.set_nodelay(true);
        let socket = SockRef::from(stream).try_clone().ok();
        let number = shared.with(|books, _| {
            books.connections += 1;
            books.open_connections += 1;
            books.connections
        });
        let (shared, socket) = (shared.clone(), Mutex::new(socket));
        Self { shared, number, socket, cut: Notify::new() }
    }

    fn let_go(&self) -> Option<Socket> {
        lock(&self.socket).take()
    }

    /// Ends the connection under whatever it carries, and waits for that end.
    async fn hang_up(&self, linger: Option<Duration>) -> ! {
        if let Some(socket) = self.let_go() {
            // Fails only if the client has reset the connection already.
            let _ = socket.set_linger(linger);
        }
        self.cut.notify_one();
        pending().await
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.shared.with(|books, _| books.open_connections -= 1);
    }
}

async fn serve(shared: Arc<Shared>, line: Arc<Line>, request: Request<Incoming>) -> Response<Outgoing> {
    let (head, body) = request.into_parts();
    let (mut visit, jitter) = Visit::begin(shared.clone(), line.number, &head);
    shared.clock.jitter(jitter.before).await;
    let Answer { delay, act, .. } = visit.count(head.uri.path());
    visit.receive(body).await;
    shared.clock.jitter(jitter.after).await;
    shared.clock.sleep_until(shared.clock.now() + delay).await;
    match act {
        Act::Reply(reply) => visit.answer(&head.method, reply),
        Act::Reset => line.hang_up(Some(Duration::ZERO)).await,
        Act::Close => line.hang_up(None).await,
        Act::Hang => pending().await,
        Act::Panic => panic!("as scripted"),
    }
}

/// One request from its head to its end. Dropped early, it ends there: the client has left.
pub(super) struct Visit {
    pub(super) shared: Arc<Shared>,
    id: usize,
    fate: Option<Fate>,
    ended: bool,
}

impl Visit {
    fn begin(shared: Arc<Shared>, connection: u64, head: &Parts) -> (Self, Jitter) {
        let (id, jitter) = shared.with(|books, now| books.came(now, head, connection));
        (Self { shared, id, fate: None, ended: false }, jitter)
    }

    fn count(&mut self, path: &str) -> Answer {
        let (fate, answer) = self.shared.with(|books, now| books.count(now, self.id, path));
        self.fate = Some(fate);
        answer
    }

    async fn receive(&self, mut body: Incoming) {
        let mut kept = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(data) = frame.into_data() {
                self.shared.with(|books, _| books.received(self.id, &data, &mut kept));
            }
        }
        self.shared.with(|books, _| books.received_all(self.id, kept));
    }

    fn answer(self, method: &Method, reply: Reply) -> Response<Outgoing> {
        let Reply { status, headers, body, cut_after } = reply;
        let now = self.shared.with(|books, now| books.answered(now, self.id, status.as_u16()));
        let bodiless = method == Method::HEAD || !has_body(status);
        let mut outgoing = Outgoing::new(self, now, body, cut_after);
        if bodiless {
            outgoing.visit.end();
        }
        let mut response = Response::new(outgoing);
        *response.status_mut() = status;
        response.headers_mut().extend(headers);
        response
    }

    pub(super) fn end(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.shared.with(|books, now| books.ended(now, self.id, self.fate));
        }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.end();
    }
}

fn has_body(status: StatusCode) -> bool {
    status != StatusCode::NO_CONTENT && status != StatusCode::NOT_MODIFIED
}
