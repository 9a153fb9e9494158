//! `/metrics` for Prometheus, `/health` for load balancers, and a live page at `/`, by HTTP.
//!
//! An [`Endpoint`] has a thread of its own, so that it replies while the threads of its program are busy, and any program with a [`Source`]
//! can have one.

mod figures;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use tokio::sync::oneshot;

pub(crate) use figures::Figures;

/// The live page. It reads `/metrics` each second.
const PAGE: &str = include_str!("page.html");

/// The content type of Prometheus's text format.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A program whose figures are shown.
pub trait Source: Send + Sync {
    /// The figures in Prometheus's text format.
    fn text(&self) -> String;

    /// Whether the program works as it should.
    ///
    /// # Errors
    /// Why it does not.
    fn health(&self) -> Result<(), String>;
}

/// Serves the figures of a source until it is dropped.
#[derive(Debug)]
pub struct Endpoint {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Endpoint {
    /// Listens on `address`; port 0 takes a free port.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the thread cannot be started.
    pub fn start(address: SocketAddr, source: Arc<dyn Source>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            tokio::select! {
                ended = async { axum::serve(listener, router(source)).await } => ended,
                // An error means that the endpoint is gone.
                _ = stopped => Ok(()),
            }
        };
        // Fails only if the listener cannot be registered; then no request is answered.
        let run = move || drop(runtime.block_on(serve));
        let thread = std::thread::Builder::new().name("metrics".into()).spawn(run)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// The address on which the endpoint listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn router(source: Arc<dyn Source>) -> Router {
    Router::new()
        .route("/", get(|| async { Html(PAGE) }))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not found: there are /, /metrics and /health\n") })
        .with_state(source)
}

async fn metrics(State(source): State<Arc<dyn Source>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, TEXT_FORMAT)], source.text())
}

async fn health(State(source): State<Arc<dyn Source>>) -> impl IntoResponse {
    match source.health() {
        Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
