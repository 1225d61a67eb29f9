//! WASI for one instance: everything is linked, and without a grant everything is denied or made to repeat.
//!
//! Without grants: no folders, no environment, no sockets and no names; random numbers from a generator seeded with the operator's uid and
//! subtask; both clocks stand at the batch's processing time. Standard input is empty, standard output and error go to the log.

use super::capabilities::{Capabilities, Folder};
use super::log::{LineStream, Loudness, PluginLog};
use crate::Error;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng;
use sha2::{Digest, Sha256};
use std::net::SocketAddr;
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

/// What a subtask's instances are granted.
#[derive(Clone, Debug)]
pub(super) struct Grants {
    capabilities: Capabilities,
    seed: [u8; 32],
}

impl Grants {
    /// The generator of random numbers is seeded with uid and subtask.
    pub(super) fn new(capabilities: Capabilities, uid: &str, subtask: u32) -> Self {
        let mut seed = Sha256::new();
        seed.update(uid.as_bytes());
        seed.update(subtask.to_le_bytes());
        Self { capabilities, seed: seed.finalize().into() }
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
        for (name, value) in &self.capabilities.environment {
            builder.env(name, value);
        }
        for Folder { path, mounted_as, write } in &self.capabilities.folders {
            let permissions = if *write { FsPerms::ReadWrite } else { FsPerms::ReadOnly };
            builder
                .preopened_dir(path, mounted_as, permissions)
                .map_err(|error| Error::user(format!("the folder {} cannot be given to the plugin", path.display())).caused_by(error))?;
        }
        if self.capabilities.network {
            builder.allow_tcp(true).allow_udp(true).allow_ip_name_lookup(true);
            builder.socket_addr_check(|address, usage| {
                let allowed = is_allowed(address, usage);
                Box::pin(async move { allowed })
            });
        }
        Ok(builder.build())
    }
}

/// Connections go out; nothing is listened for.
fn is_allowed(address: SocketAddr, usage: SocketAddrUse) -> bool {
    match usage {
        SocketAddrUse::TcpBind | SocketAddrUse::UdpBind => address.ip().is_unspecified() && address.port() == 0,
        SocketAddrUse::TcpListen | SocketAddrUse::TcpAccept => false,
        _ => true,
    }
}
