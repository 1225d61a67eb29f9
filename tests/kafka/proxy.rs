//! A proxy between the clients and a broker, which understands as much of Kafka's protocol as it needs to lose the answers to one kind of request:
//! frames with a length in front, the request's kind and correlation id, and the correlation id of each answer.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Kafka's number of the request that ends a transaction.
pub(crate) const END_TXN: i16 = 26;
/// The shortest answer has a correlation id and two bytes, the shortest request is longer.
const MIN_FRAME_BYTES: u32 = 6;
/// No frame of these tests is longer.
const MAX_FRAME_BYTES: u32 = 64 << 20;

/// What happens to requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The broker does what was asked, and the answer never comes.
    LoseAnswer,
    /// The broker does what was asked, and the connection breaks instead of the answer.
    CutInsteadOfAnswer,
    /// The request reaches the broker so late that its sender may have given up.
    Delay(Duration),
}

/// A proxy on a port of its own. It ends when it is dropped.
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    port: u16,
    listener: Mutex<Option<std::net::TcpListener>>,
    runtime: Runtime,
}

struct Shared {
    /// Faults that are still to happen, by kind of request, the first one first.
    faults: Mutex<HashMap<i16, Vec<Fault>>>,
    /// How many have happened.
    happened: AtomicUsize,
    /// Each frame waits so long, in milliseconds.
    delay: AtomicU64,
    cut: watch::Sender<bool>,
}

impl Proxy {
    /// Takes a port. Connections are served once [`Proxy::serve`] says where the broker is, which has to know the port before.
    pub(crate) fn bind() -> Self {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared =
            Shared { faults: Mutex::default(), happened: AtomicUsize::new(0), delay: AtomicU64::new(0), cut: watch::Sender::new(false) };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Self { shared: Arc::new(shared), port, listener: Mutex::new(Some(listener)), runtime }
    }

    /// Where clients connect.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Forwards to this broker from now on.
    pub(crate) fn serve(&self, broker: SocketAddr) {
        let listener = self.listener.lock().unwrap().take().expect("it serves one broker");
        let shared = Arc::clone(&self.shared);
        self.runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                tokio::spawn(connection(client, broker, Arc::clone(&shared)));
            }
        });
    }

    /// Lets this happen to the next request of a kind, after what was ordered before.
    pub(crate) fn order(&self, kind: i16, fault: Fault) {
        self.shared.faults.lock().unwrap().entry(kind).or_default().push(fault);
    }

    /// How many faults have happened.
    pub(crate) fn happened(&self) -> usize {
        self.shared.happened.load(Ordering::SeqCst)
    }

    /// Each frame takes so much longer in each direction.
    pub(crate) fn slow_down(&self, delay: Duration) {
        self.shared.delay.store(u64::try_from(delay.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Breaks all connections and refuses new ones, until it is mended.
    pub(crate) fn cut(&self) {
        self.shared.cut.send_replace(true);
    }

    /// The network is there again.
    pub(crate) fn mend(&self) {
        self.shared.cut.send_replace(false);
    }
}

/// Requests of a connection whose answers are awaited: what is to become of each.
type Pending = Arc<Mutex<HashMap<i32, Option<Fault>>>>;

async fn connection(client: TcpStream, broker: SocketAddr, shared: Arc<Shared>) {
    let mut cut = shared.cut.subscribe();
    if *cut.borrow() {
        return;
    }
    let Ok(server) = TcpStream::connect(broker).await else { return };
    // Small frames in both directions; the end of a transaction must not wait for an acknowledgement of TCP.
    if client.set_nodelay(true).and(server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let pending = Pending::default();
    // A request that is late goes on its way even when its sender has hung up meanwhile: only a cut network stops it.
    let requests = tokio::spawn(requests(from_client, to_server, Arc::clone(&shared), Arc::clone(&pending)));
    tokio::select! {
        _ = answers(from_server, to_client, &shared, &pending) => {}
        _ = cut.wait_for(|cut| *cut) => requests.abort(),
    }
}

/// Forwards requests and notes what is to become of their answers.
async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Shared>, pending: Pending) -> io::Result<()> {
    loop {
        let frame = read_frame(&mut from).await?;
        if frame.len() < 8 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a request without a correlation id"));
        }
        let kind = i16::from_be_bytes([frame[0], frame[1]]);
        let id = i32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]);
        let fault = shared.next_fault(kind);
        pending.lock().unwrap().insert(id, fault);
        if let Some(Fault::Delay(delay)) = fault {
            tokio::time::sleep(delay).await;
        }
        shared.wait().await;
        write_frame(&mut to, &frame).await?;
    }
}

/// Forwards answers but those that are to be lost.
async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, pending: &Pending) -> io::Result<()> {
    loop {
        let frame = read_frame(&mut from).await?;
        let id = i32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]);
        let fault = pending.lock().unwrap().remove(&id).flatten();
        shared.wait().await;
        match fault {
            Some(Fault::LoseAnswer) => {}
            Some(Fault::CutInsteadOfAnswer) => return Ok(()),
            Some(Fault::Delay(_)) | None => write_frame(&mut to, &frame).await?,
        }
    }
}

impl Shared {
    fn next_fault(&self, kind: i16) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let queue = faults.get_mut(&kind).filter(|queue| !queue.is_empty())?;
        let fault = queue.remove(0);
        self.happened.fetch_add(1, Ordering::SeqCst);
        Some(fault)
    }

    async fn wait(&self) {
        let delay = self.delay.load(Ordering::SeqCst);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }
}

/// A frame without its length.
async fn read_frame(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    if !(MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&length) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut frame = vec![0; usize::try_from(length).unwrap()];
    from.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn write_frame(to: &mut OwnedWriteHalf, frame: &[u8]) -> io::Result<()> {
    let mut whole = Vec::with_capacity(frame.len() + 4);
    whole.extend_from_slice(&u32::try_from(frame.len()).unwrap().to_be_bytes());
    whole.extend_from_slice(frame);
    to.write_all(&whole).await
}
