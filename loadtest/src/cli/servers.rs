//! Arguments of `provider` and `relay`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::error::SetupError;
use crate::fast::ProviderSettings;
use crate::hosts;
use crate::plan::{parse_bytes_within, parse_duration, parse_listen, parse_share};
use crate::relay::{Mishap, RelaySettings};
use crate::trust;

/// Arguments of `provider`.
#[derive(Debug, Args)]
pub(crate) struct ProviderArgs {
    /// Loopback address and port; port 0 picks one. The choice is printed as `listening on ADDRESS`.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// Threads, each with its own listener on the same port.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    cores: u16,
    /// Length of the precomputed JSON answers: bytes, or with KB or MB.
    #[arg(long, default_value = "1024", value_name = "BYTES", value_parser = parse_answer_bytes)]
    answer_bytes: u32,
    /// Content frames of the precomputed streams.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    frames: u32,
    /// Milliseconds between frames of the precomputed streams.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    frame_ms: u32,
    /// Milliseconds before each precomputed answer, as if a model were thinking.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    delay_ms: u32,
    /// Stand still every so often for so long: `2s:200ms`.
    #[arg(long, value_name = "EVERY:TIME", value_parser = parse_stall)]
    stall: Option<(Duration, Duration)>,
    /// Say in each precomputed answer's head which bytes its body has, so that `run` checks them.
    #[arg(long)]
    digest: bool,
    /// Speak TLS with this certificate chain, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_certificate: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// Compute every answer from its prompt instead of precomputing it. `x-fake-*` headers work either way.
    #[arg(long)]
    full: bool,
    /// Answer ordinary requests with this status as soon as their head has come, and read their bodies after that.
    #[arg(long, value_name = "STATUS", conflicts_with = "full", value_parser = clap::value_parser!(u16).range(200..=599))]
    early: Option<u16>,
    /// Stop after this time (`30s`, `500ms`, `10m`); without it, run until ended.
    #[arg(long = "for", value_parser = parse_duration)]
    run_for: Option<Duration>,
}

impl ProviderArgs {
    pub(crate) fn settings(self) -> Result<ProviderSettings, SetupError> {
        hosts::require_loopback("--listen", self.listen.ip(), None)?;
        Ok(ProviderSettings {
            listen: self.listen,
            cores: usize::from(self.cores),
            answer_bytes: self.answer_bytes as usize,
            frames: self.frames as usize,
            frame_ms: u64::from(self.frame_ms),
            delay_ms: u64::from(self.delay_ms),
            stall: self.stall,
            digest: self.digest,
            tls: self.tls_certificate.zip(self.tls_key).map(|(chain, key)| trust::server(&chain, &key)).transpose()?,
            full: self.full,
            early: self.early,
            run_for: self.run_for,
        })
    }
}

/// Arguments of `relay`.
#[derive(Debug, Args)]
pub(crate) struct RelayArgs {
    /// Loopback address and port; port 0 picks one. The choice is printed as `listening on ADDRESS`.
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen)]
    listen: SocketAddr,
    /// The server behind it: HOST:PORT or http://HOST:PORT.
    #[arg(long)]
    to: String,
    /// Share of the answers that begin later, and by how much: `5%:200ms` or `0.05:200ms`.
    #[arg(long, value_name = "SHARE:TIME", value_parser = parse_delay)]
    delay: Option<(f64, Mishap)>,
    /// Share of the answers that dribble, the bytes of a piece, and the time between pieces: `1%:16:20ms`.
    #[arg(long, value_name = "SHARE:BYTES:TIME", value_parser = parse_dribble)]
    dribble: Option<(f64, Mishap)>,
    /// Share of the answers after whose first bytes the connection is closed: `1%:100`.
    #[arg(long, value_name = "SHARE:BYTES", value_parser = parse_cut)]
    cut: Option<(f64, Mishap)>,
    /// Share of the answers after whose first bytes the connection breaks: `1%:100`.
    #[arg(long, value_name = "SHARE:BYTES", value_parser = parse_reset)]
    reset: Option<(f64, Mishap)>,
    /// Where the draws begin: the same seed and connections meet the same faults.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after this time (`30s`, `500ms`, `10m`) and print what was done; without it, run until ended.
    #[arg(long = "for", value_parser = parse_duration)]
    run_for: Option<Duration>,
    /// A host other than this machine that may be passed load; may be repeated.
    #[arg(long = "i-may-load-this-host", value_name = "HOST")]
    allowed_hosts: Vec<String>,
}

impl RelayArgs {
    pub(crate) fn settings(self) -> Result<RelaySettings, SetupError> {
        hosts::require_loopback("--listen", self.listen.ip(), None)?;
        let to = self.to.strip_prefix("http://").unwrap_or(&self.to).trim_end_matches('/');
        let to = hosts::resolve("--to", to, 80, &self.allowed_hosts)?;
        let mishaps: Vec<(f64, Mishap)> =
            [self.delay, self.dribble, self.cut, self.reset].into_iter().flatten().collect();
        let together: f64 = mishaps.iter().map(|(share, _)| share).sum();
        if together > 1.0 {
            return Err(SetupError(format!(
                "--delay, --dribble, --cut and --reset are {together} of all answers together; accepted is up to 1: an answer meets one of them"
            )));
        }
        Ok(RelaySettings { listen: self.listen, to, mishaps, seed: self.seed, run_for: self.run_for })
    }
}

fn parse_answer_bytes(text: &str) -> Result<u32, String> {
    parse_bytes_within(text, 512, 64 << 20)
}

fn parse_stall(text: &str) -> Result<(Duration, Duration), String> {
    let (every, time) = text.split_once(':').ok_or("accepted is EVERY:TIME, as in 2s:200ms")?;
    Ok((parse_duration(every)?, parse_duration(time)?))
}

fn parse_delay(text: &str) -> Result<(f64, Mishap), String> {
    let (share, time) = text.split_once(':').ok_or("accepted is SHARE:TIME, as in 5%:200ms")?;
    Ok((parse_share(share)?, Mishap::Delay(parse_duration(time)?)))
}

fn parse_dribble(text: &str) -> Result<(f64, Mishap), String> {
    const ACCEPTED: &str = "accepted is SHARE:BYTES:TIME, as in 1%:16:20ms";
    let (share, rest) = text.split_once(':').ok_or(ACCEPTED)?;
    let (bytes, time) = rest.split_once(':').ok_or(ACCEPTED)?;
    let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0).ok_or(ACCEPTED)?;
    Ok((parse_share(share)?, Mishap::Dribble(bytes, parse_duration(time)?)))
}

fn parse_cut(text: &str) -> Result<(f64, Mishap), String> {
    share_and_bytes(text).map(|(share, bytes)| (share, Mishap::Cut(bytes)))
}

fn parse_reset(text: &str) -> Result<(f64, Mishap), String> {
    share_and_bytes(text).map(|(share, bytes)| (share, Mishap::Reset(bytes)))
}

fn share_and_bytes(text: &str) -> Result<(f64, usize), String> {
    const ACCEPTED: &str = "accepted is SHARE:BYTES, as in 1%:100";
    let (share, bytes) = text.split_once(':').ok_or(ACCEPTED)?;
    Ok((parse_share(share)?, bytes.parse().map_err(|_| ACCEPTED)?))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::{Cli, Command};
    use super::*;

    fn relay(args: &str) -> Result<RelaySettings, String> {
        let line = format!("weir-loadtest relay --listen 127.0.0.1:0 {args}");
        match Cli::try_parse_from(line.split_whitespace()).map_err(|error| error.to_string())?.command {
            Command::Relay(args) => args.settings().map_err(|error| error.0),
            _ => Err("not a relay".to_owned()),
        }
    }

    #[test]
    fn faults_are_shares_of_the_answers() {
        let all = relay("--to http://127.0.0.1:9/ --delay 5%:200ms --dribble 0.1:16:20ms --cut 1%:100 --reset 0.5%:0")
            .unwrap();
        assert_eq!(all.to.port(), 9);
        assert_eq!(all.mishaps[0], (0.05, Mishap::Delay(Duration::from_millis(200))));
        assert_eq!(all.mishaps[1], (0.1, Mishap::Dribble(16, Duration::from_millis(20))));
        assert_eq!((all.mishaps[2].1, all.mishaps[3].1), (Mishap::Cut(100), Mishap::Reset(0)));
        for (args, says) in [
            ("--to 127.0.0.1:9 --cut 2:5", "accepted is a share of 0 to 1"),
            ("--to 127.0.0.1:9 --cut 5%", "accepted is SHARE:BYTES, as in 1%:100"),
            ("--to 127.0.0.1:9 --cut 60%:1 --reset 60%:1", "are 1.2 of all answers together"),
            ("--to 192.0.2.1:9", "add --i-may-load-this-host 192.0.2.1"),
        ] {
            let error = relay(args).unwrap_err();
            assert!(error.contains(says), "{args}: {error}");
        }
    }

    #[test]
    fn a_provider_serves_this_machine_only() {
        let cli = Cli::try_parse_from(["weir-loadtest", "provider", "--listen", "0.0.0.0:1"]).unwrap();
        let Command::Provider(args) = cli.command else { panic!() };
        assert!(args.settings().unwrap_err().0.starts_with("--listen is 0.0.0.0;"));
    }
}
