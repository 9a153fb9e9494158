//! The server: listeners, the threads that serve connections, and the orderly end.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cache::{Cache, CacheError};
use device::{Clock, SystemClock};
use parking_lot::Mutex;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};

use crate::address::{Address, remove_stale_socket};
use crate::connection::Connection;
use crate::counters::{Counter, Counters};
use crate::item::HEADER_BYTES;
use crate::latency::Latency;
use crate::metrics::{Figures, Source};
use crate::options::{Options, StartError};
use crate::prefixes::Prefixes;
use crate::protocol::reply;
use crate::shared::{BUDGET_UNIT_BYTES, Shared};
use crate::store::Store;
use crate::tenants::Tenants;
use crate::tls::Tls;

/// How long no connection is accepted after one could not be, because there are no descriptors left, say.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// A running server. Dropping it ends its connections without closing the cache.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<Address>,
    /// Sockets to remove, with their inodes.
    sockets: Vec<(PathBuf, Option<(u64, u64)>)>,
    stop: watch::Sender<bool>,
    /// Ends when every listener and connection has ended.
    ended: Mutex<mpsc::Receiver<()>>,
    runtime: Option<Runtime>,
}

/// A bound listener.
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Server {
    /// Starts to serve the cache.
    ///
    /// # Errors
    /// If an address cannot be listened on or is not permitted, or a limit contradicts the cache.
    pub fn start(cache: Arc<Cache>, mut options: Options) -> Result<Self, StartError> {
        options.check()?;
        let (buffer_bytes, item_bytes) = (options.buffer_bytes, cache.max_item_bytes());
        // A request is as long as its item, its line, and the flags of the line.
        if buffer_bytes < item_bytes + (4 << 10) {
            return Err(StartError::Buffers { buffer_bytes, item_bytes });
        }
        options.threads = options.threads.max(1);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.threads)
            .thread_name("serve")
            .enable_all()
            .build()
            .map_err(StartError::Threads)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let (started_seconds, max_value_bytes) = (clock.unix_seconds(), item_bytes - HEADER_BYTES);
        let listeners = runtime.block_on(async { bind_all(&options.listen) })?;
        let budget = Arc::new(Semaphore::new(buffer_bytes / BUDGET_UNIT_BYTES));
        let connections = Arc::new(Semaphore::new(options.max_connections));
        let tenants = Tenants::new(&options.tenants).map_err(StartError::Tenants)?;
        let store = runtime.block_on(Store::new(cache, clock)).with_tenants(tenants);
        let counters = Counters::default();
        let prefixes = Prefixes::new(options.prefix_delimiter);
        let latency = Latency::default();
        let shared = Arc::new(Shared {
            store,
            options,
            counters,
            prefixes,
            latency,
            budget,
            connections,
            max_value_bytes,
            started_seconds,
        });
        let (stop, stopping) = watch::channel(false);
        let (running, ended) = mpsc::channel(1);
        let (mut addresses, mut sockets) = (Vec::new(), Vec::new());
        for (listener, address) in listeners {
            if let Address::Unix(path) = &address {
                sockets.push((path.clone(), inode(path)));
            }
            addresses.push(address);
            let context =
                Context { shared: Arc::clone(&shared), stop: stopping.clone(), running: running.clone() };
            runtime.spawn(context.accept(listener));
        }
        Ok(Self { shared, addresses, sockets, stop, ended: Mutex::new(ended), runtime: Some(runtime) })
    }

    /// Where clients connect: with the ports that were taken.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The value of a counter.
    #[must_use]
    pub fn counter(&self, counter: Counter) -> u64 {
        self.shared.counters.get(counter)
    }

    /// The figures of the server and its cache, for a [`metrics::Endpoint`](crate::metrics::Endpoint).
    #[must_use]
    pub fn figures(&self) -> Arc<dyn Source> {
        Arc::new(Figures::of(&self.shared))
    }

    /// The clients' items that the cache had when the server started.
    #[must_use]
    pub fn recovered_items(&self) -> usize {
        self.shared.store.recovered_items()
    }

    /// Connections open now.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.open_connections()
    }

    /// Accepts no more connections, answers the requests that have arrived, ends all connections and closes the cache. `limit` is
    /// for each of the three steps.
    ///
    /// # Errors
    /// As [`Cache::close_within`].
    pub fn close(mut self, limit: Duration) -> Result<(), CacheError> {
        self.stop.send_replace(true);
        let Some(runtime) = self.runtime.take() else { return Ok(()) };
        let ended = self.ended.get_mut();
        // A client that does not read its replies is disconnected at the limit.
        let _ = runtime.block_on(async { tokio::time::timeout(limit, ended.recv()).await });
        runtime.block_on(self.shared.store.persist());
        let closed = self.shared.store.cache().close_within(limit);
        // Waits for the threads: their tasks hold the cache, and the cache holds its device.
        runtime.shutdown_timeout(limit);
        closed
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        for (path, bound) in &self.sockets {
            // Another server may have put its own socket there.
            if inode(path) == *bound {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

fn bind_all(addresses: &[Address]) -> Result<Vec<(Listener, Address)>, StartError> {
    let bind = |address: &Address| {
        bind(address).map_err(|error| StartError::Listen { address: address.clone(), error })
    };
    addresses.iter().map(bind).collect()
}

fn bind(address: &Address) -> io::Result<(Listener, Address)> {
    match address {
        Address::Unix(path) => {
            remove_stale_socket(path)?;
            Ok((Listener::Unix(UnixListener::bind(path)?), address.clone()))
        }
        Address::Tcp(wanted) => {
            let listener = std::net::TcpListener::bind(wanted)?;
            listener.set_nonblocking(true)?;
            let bound = Address::Tcp(listener.local_addr()?);
            Ok((Listener::Tcp(TcpListener::from_std(listener)?), bound))
        }
    }
}

/// The parts of a server that its tasks hold.
#[derive(Clone)]
struct Context {
    shared: Arc<Shared>,
    stop: watch::Receiver<bool>,
    /// Held while the task runs; the server has stopped when all copies are dropped.
    running: mpsc::Sender<()>,
}

impl Context {
    async fn accept(self, listener: Listener) {
        loop {
            let accepted = tokio::select! {
                accepted = self.accept_one(&listener) => accepted,
                _ = wait_for_stop(self.stop.clone()) => return,
            };
            if accepted.is_err() {
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }

    async fn accept_one(&self, listener: &Listener) -> io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let socket = listener.accept().await?.0;
                // Replies are sent whole: waiting for more would only delay them.
                socket.set_nodelay(true)?;
                match &self.shared.options.tls {
                    Some(tls) => self.admit_encrypted(socket, tls),
                    None => {
                        let (read, write) = socket.into_split();
                        self.admit(read, write);
                    }
                }
            }
            Listener::Unix(listener) => {
                let (read, write) = listener.accept().await?.0.into_split();
                self.admit(read, write);
            }
        }
        Ok(())
    }

    fn admit<R, W>(&self, read: R, write: W)
    where
        R: tokio::io::AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        match Arc::clone(&self.shared.connections).try_acquire_owned() {
            Ok(permit) => drop(tokio::spawn(self.clone().serve(permit, read, write))),
            Err(_) => {
                self.shared.counters.count(Counter::rejected_connections);
                drop(tokio::spawn(refuse(write)));
            }
        }
    }

    /// Admits a connection that begins with a TLS handshake. Above the limit of connections it is closed without a message, because the
    /// handshake that a message needs is expensive.
    fn admit_encrypted(&self, socket: TcpStream, tls: &Tls) {
        let Ok(permit) = Arc::clone(&self.shared.connections).try_acquire_owned() else {
            return self.shared.counters.count(Counter::rejected_connections);
        };
        let handshake = tls.acceptor().accept(socket);
        let context = self.clone();
        drop(tokio::spawn(async move {
            let limit = context.shared.options.client_timeout;
            let accepted = tokio::select! {
                accepted = tokio::time::timeout(limit, handshake) => accepted,
                _ = wait_for_stop(context.stop.clone()) => return,
            };
            let Ok(Ok(stream)) = accepted else {
                return context.shared.counters.count(Counter::ssl_handshake_errors);
            };
            let (read, write) = tokio::io::split(stream);
            context.serve(permit, read, write).await;
        }));
    }

    async fn serve<R, W>(self, permit: OwnedSemaphorePermit, read: R, write: W)
    where
        R: tokio::io::AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        self.shared.counters.count(Counter::total_connections);
        Connection::new(Arc::clone(&self.shared), read, write).serve(self.stop).await;
        drop((permit, self.running));
    }
}

async fn wait_for_stop(mut stop: watch::Receiver<bool>) {
    // An error means that the server is gone.
    let _ = stop.wait_for(|stop| *stop).await;
}

/// Sends the reason why the connection is refused.
async fn refuse(mut client: impl AsyncWrite + Unpin) {
    let mut reply = Vec::new();
    reply::line(&mut reply, reply::TOO_MANY_CONNECTIONS);
    // The client may not read the reply.
    let _ = tokio::time::timeout(Duration::from_secs(1), client.write_all(&reply)).await;
}
