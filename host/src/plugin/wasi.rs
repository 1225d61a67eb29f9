//! WASI for one instance: everything is linked, and without a grant everything is denied or made to repeat.
//!
//! Without grants: no folders, no environment, no sockets and no names; random numbers from a generator seeded with the operator's uid and
//! subtask; both clocks stand at the batch's processing time. Standard input is empty, standard output and error go to the log.

use super::capabilities::Capabilities;
use super::log::{LineStream, Loudness, PluginLog};
use crate::Error;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use wasmtime_wasi::sockets::SocketAddrUse;
use wasmtime_wasi::{FsPerms, HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder};

/// The time that a plugin sees, in milliseconds since the Unix epoch: the processing time of its batch. All clones are one.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchClock(Arc<AtomicI64>);

impl BatchClock {
    /// Never goes back, as a monotonic clock must not.
    pub(super) fn set(&self, processing_time: i64) {
        self.0.fetch_max(processing_time, Ordering::Relaxed);
    }

    fn since_epoch(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0))
    }
}

impl HostWallClock for BatchClock {
    fn resolution(&self) -> Duration {
        Duration::from_millis(1)
    }

    fn now(&self) -> Duration {
        self.since_epoch()
    }
}

impl HostMonotonicClock for BatchClock {
    fn resolution(&self) -> u64 {
        1_000_000
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since_epoch().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// What an operator was granted, resolved once: names are looked up when the operator starts, not for each instance.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    capabilities: Capabilities,
    addresses: Arc<[Allowed]>,
    seed: [u8; 32],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allowed {
    Everything,
    Host(IpAddr),
    Port(SocketAddr),
}

impl Grants {
    /// No grant; the generator of random numbers is seeded with uid and subtask.
    pub(super) fn none(uid: &str, subtask: u32) -> Self {
        let mut seed = Sha256::new();
        seed.update(uid.as_bytes());
        seed.update(subtask.to_le_bytes());
        Self { capabilities: Capabilities::default(), addresses: Arc::new([]), seed: seed.finalize().into() }
    }

    /// Looks up what the capabilities name.
    pub(super) async fn resolve(capabilities: &Capabilities, uid: &str, subtask: u32) -> Result<Self, Error> {
        let mut addresses = Vec::new();
        for written in &capabilities.network {
            match parse_address(written) {
                Some(address) => addresses.push(address),
                None => addresses.extend(look_up(written).await?),
            }
        }
        Ok(Self { capabilities: capabilities.clone(), addresses: addresses.into(), ..Self::none(uid, subtask) })
    }

    /// A context for one instance.
    pub(super) fn context(&self, clock: &BatchClock, log: &PluginLog) -> Result<WasiCtx, Error> {
        let mut builder = WasiCtxBuilder::new();
        builder.stdout(LineStream::new(log.clone(), Loudness::Info)).stderr(LineStream::new(log.clone(), Loudness::Warn));
        if !self.capabilities.clock {
            builder.wall_clock(clock.clone()).monotonic_clock(clock.clone());
        }
        if !self.capabilities.random {
            let mut insecure = self.seed;
            insecure[0] ^= 1;
            let seed = self.seed.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes));
            builder.secure_random(ChaCha12Rng::from_seed(self.seed));
            builder.insecure_random(ChaCha12Rng::from_seed(insecure)).insecure_random_seed(seed);
        }
        for name in &self.capabilities.environment {
            if let Ok(value) = std::env::var(name) {
                builder.env(name, value);
            }
        }
        for directory in &self.capabilities.directories {
            let permissions = if directory.read_only { FsPerms::ReadOnly } else { FsPerms::ReadWrite };
            builder.preopened_dir(&directory.host, &directory.guest, permissions).map_err(|error| {
                Error::user(format!("the folder {} cannot be given to the plugin", directory.host.display())).caused_by(error)
            })?;
        }
        self.network(&mut builder);
        Ok(builder.build())
    }

    fn network(&self, builder: &mut WasiCtxBuilder) {
        if self.addresses.is_empty() {
            return;
        }
        let addresses = Arc::clone(&self.addresses);
        builder.allow_tcp(true).allow_udp(true).allow_ip_name_lookup(true);
        builder.socket_addr_check(move |address, usage| {
            let allowed = is_allowed(&addresses, address, usage);
            Box::pin(async move { allowed })
        });
    }
}

/// Connections go out to what is allowed; nothing is listened for.
fn is_allowed(addresses: &[Allowed], address: SocketAddr, usage: SocketAddrUse) -> bool {
    match usage {
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => address.ip().is_unspecified() && address.port() == 0,
        SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => false,
        _ => addresses.iter().any(|allowed| match allowed {
            Allowed::Everything => true,
            Allowed::Host(host) => *host == address.ip(),
            Allowed::Port(port) => *port == address,
        }),
    }
}

fn parse_address(written: &str) -> Option<Allowed> {
    if written == "*" {
        return Some(Allowed::Everything);
    }
    written.parse().map(Allowed::Port).or_else(|_| written.parse().map(Allowed::Host)).ok()
}

async fn look_up(written: &str) -> Result<Vec<Allowed>, Error> {
    let found = tokio::net::lookup_host(written).await.map_err(|error| {
        let message = format!("the network grant {written:?} is none of `address:port`, `address`, `name:port` and `*`, or its name is not known");
        Error::external(message).caused_by(error)
    })?;
    Ok(found.map(Allowed::Port).collect())
}
