//! Why the gateway does not start: one sentence each that names the setting and what to do.

use std::io;
use std::net::SocketAddr;

use crate::identity::IdentityError;

/// A start that failed.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The settings are not usable.
    #[error("{0}")]
    Settings(#[from] weir_config::LoadError),
    /// The log filter is not usable.
    #[error("{0}")]
    Log(#[from] crate::ops::log::LogError),
    /// io_uring was demanded and is not to be had.
    #[error("{0}")]
    Driver(#[from] crate::rt::DriverError),
    /// The address cannot be listened on.
    #[error("listen_addr `{addr}`: {}", bind_advice(.source))]
    Bind {
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The listener's certificate cannot be used.
    #[error("{0}")]
    Certificate(#[from] super::certificate::CertificateError),
    /// The address of the metrics listener cannot be listened on.
    #[error("server.metrics_addr `{addr}`: {}", bind_advice(.source))]
    BindMetrics {
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address of the gRPC listener cannot be listened on.
    #[error("grpc.listen_addr `{addr}`: {}", bind_advice(.source))]
    BindGrpc {
        /// The address.
        addr: SocketAddr,
        /// What the kernel said.
        source: io::Error,
    },
    /// The process that serves the address does not hand it over.
    #[error(
        "listen_addr `{addr}`: it cannot be taken over: {source}; stop the other process and start without --take-over"
    )]
    TakeOver {
        /// The address.
        addr: SocketAddr,
        /// What went wrong.
        source: io::Error,
    },
    /// The service manager has passed sockets that are not usable.
    #[error("the sockets passed by the service manager (LISTEN_FDS) cannot be used: {0}")]
    Passed(io::Error),
    /// It has passed sockets, and none of them is the listener.
    #[error(
        "listen_addr `{addr}`: the service manager has passed sockets (LISTEN_FDS), but they listen on {found}; give \
         listen_addr and ListenStream= the same address"
    )]
    NotPassed {
        /// The address.
        addr: SocketAddr,
        /// Where they listen.
        found: String,
    },
    /// The store cannot be opened.
    #[error("{0}")]
    Store(#[from] weir_storage::OpenError),
    /// Another process uses the database, and the settings do not let two.
    #[error(
        "storage.database_path `{database}`: it is in use by {by}; stop that process, start with --take-over on its address to take \
         its place, name another file, or let several gateways use this one with storage.shared_file: true"
    )]
    DatabaseInUse {
        /// The file.
        database: String,
        /// Who uses it.
        by: String,
    },
    /// The pricing file is not usable.
    #[error("{0}")]
    Prices(#[from] weir_config::prices::PriceFileError),
    /// What has been spent cannot be read: budgets would start again from zero.
    #[error("what agents have spent cannot be read from the store: {0}")]
    Spend(#[from] weir_storage::ReadError),
    /// Tenants and keys cannot be loaded.
    #[error("{0}")]
    Identity(#[from] crate::identity::IdentityError),
    /// The provider cannot be set up.
    #[error("{0}")]
    Peer(#[from] crate::forward::PeerError),
    /// The embedded rules do not compile: a defect of this build.
    #[error("the detection rules of this build cannot be loaded: {0}")]
    Rules(#[from] weir_inference::LoadError),
    /// The second stage in this build is damaged: a defect of this build.
    #[error("the second stage of this build cannot be loaded: {0}")]
    SecondStage(String),
    /// The operator's rules are not usable.
    #[error("{0}")]
    OwnRules(String),
    /// The operator's fusion model is not usable.
    #[error("{0}")]
    Fusion(String),
    /// Receipts cannot be written.
    #[error("{0}")]
    Receipts(#[from] crate::receipts::ReceiptsError),
    /// A setting that names a model does not name one.
    #[error("{0}")]
    Models(String),
    /// A thread or runtime cannot be created.
    #[error("could not start {what}: {source}; check the process's limits on threads, memory and descriptors")]
    Thread {
        /// What was to be started.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl StartError {
    /// The exit code a supervisor can act on, after sysexits.h: 78 for settings and files that a person has to change, 75 for what
    /// another try may find mended, 70 for this program or this machine.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Bind { source, .. } | Self::BindMetrics { source, .. } | Self::BindGrpc { source, .. } => {
                if source.kind() == io::ErrorKind::PermissionDenied { EXIT_SETTINGS } else { EXIT_TEMPORARY }
            }
            Self::Store(error) => {
                if error.is_lasting() {
                    EXIT_SETTINGS
                } else {
                    EXIT_TEMPORARY
                }
            }
            Self::Identity(IdentityError::KeyFile(_)) => EXIT_SETTINGS,
            Self::TakeOver { .. } | Self::DatabaseInUse { .. } | Self::Spend(_) | Self::Identity(_) => EXIT_TEMPORARY,
            Self::Rules(_) | Self::SecondStage(_) | Self::Thread { .. } => EXIT_INTERNAL,
            Self::Settings(_)
            | Self::Log(_)
            | Self::Driver(_)
            | Self::Certificate(_)
            | Self::Passed(_)
            | Self::NotPassed { .. }
            | Self::Prices(_)
            | Self::Peer(_)
            | Self::OwnRules(_)
            | Self::Fusion(_)
            | Self::Receipts(_)
            | Self::Models(_) => EXIT_SETTINGS,
        }
    }
}

/// EX_CONFIG.
const EXIT_SETTINGS: u8 = 78;
/// EX_TEMPFAIL.
const EXIT_TEMPORARY: u8 = 75;
/// EX_SOFTWARE.
const EXIT_INTERNAL: u8 = 70;

fn bind_advice(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse if error.get_ref().is_some() => {
            format!("{error}; stop that process or choose another port")
        }
        io::ErrorKind::AddrInUse => {
            "the port is in use by another process; stop that one or choose another port".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "not permitted; ports below 1024 need CAP_NET_BIND_SERVICE, or choose a higher port".to_owned()
        }
        io::ErrorKind::AddrNotAvailable => {
            "this machine has no such address; use one of its own, or 0.0.0.0 for all".to_owned()
        }
        _ => error.to_string(),
    }
}
