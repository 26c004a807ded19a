//! The options of `watch`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use clap::builder::FalseyValueParser;

use crate::watch::template::Template;
use crate::watch::{hooks, serve};

/// Follow a running job: name the rank that stalls it within seconds, collect the evidence, and diagnose it
#[derive(Clone, Debug, Default, Args)]
#[command(after_long_help = include_str!("../help/watch.txt"))]
pub(crate) struct WatchArgs {
    /// Processes of the job, with their children; a launcher will do [default: each job of this node]
    #[arg(long, value_name = "PID", value_delimiter = ',')]
    pub(crate) pid: Vec<u32>,
    /// Processes of this Slurm job on this node
    #[arg(long, value_name = "SLURM", conflicts_with = "pid")]
    pub(crate) job: Option<String>,
    /// Start this command with the plugin loaded and follow it; `watch` ends with its exit code
    #[arg(value_name = "CMD", last = true, conflicts_with_all = ["pid", "job"])]
    pub(crate) command: Vec<OsString>,
    /// Replay recorded rings (files, folders or bundles): what `watch` would have printed, and when
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["pid", "job", "command", "stay", "hub"])]
    pub(crate) replay: Vec<PathBuf>,
    /// Folder of the plugin's rings [default: $RINGLEADER_RING_DIR, /dev/shm/ringleader, /tmp/ringleader]
    #[arg(long, value_name = "DIR")]
    pub(crate) rings: Option<PathBuf>,
    /// Print events, one JSON object per line
    #[arg(long, env = "RINGLEADER_JSON", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) json: bool,
    /// Keep running after a job ends and follow the next one; needs no terminal
    #[arg(long, env = "RINGLEADER_STAY", hide_env = true, value_parser = FalseyValueParser::new(),
          conflicts_with_all = ["once", "until_verdict", "command"])]
    pub(crate) stay: bool,
    /// With --stay: number of newest bundles to keep
    #[arg(long, value_name = "N", default_value = "20", requires = "stay")]
    pub(crate) keep: usize,
    /// Print the state of the job once and exit
    #[arg(long)]
    pub(crate) once: bool,
    /// Exit after this many seconds
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) for_s: Option<f64>,
    /// Exit after the first verdict
    #[arg(long)]
    pub(crate) until_verdict: bool,
    /// Seconds between two samples
    #[arg(long, value_name = "SECONDS", default_value = "0.5", value_parser = interval,
          env = "RINGLEADER_INTERVAL", hide_env = true)]
    pub(crate) interval: f64,
    /// A pause of this many times the usual one is a stall
    #[arg(long, value_name = "FACTOR", default_value = "5", value_parser = factor,
          env = "RINGLEADER_STALL_FACTOR", hide_env = true)]
    pub(crate) stall_factor: f64,
    /// Shortest pause that counts as a stall, seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds,
          env = "RINGLEADER_STALL_FLOOR", hide_env = true)]
    pub(crate) stall_floor: f64,
    /// Hold the verdict on a rank that lives and is elsewhere until the others have waited this long, or the job ends:
    /// it may come back by itself; twice as long where it is asleep. The stall itself is reported at once
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = hold,
          env = "RINGLEADER_HOLD", hide_env = true)]
    pub(crate) hold: f64,
    /// Folder for bundles [default: the current one]
    #[arg(long, value_name = "DIR", env = "RINGLEADER_OUT", hide_env = true)]
    pub(crate) out: Option<PathBuf>,
    /// Run this in a shell at every verdict, with the report (json-v1) on its standard input
    #[arg(long, value_name = "CMD", env = "RINGLEADER_ON_STALL", hide_env = true)]
    pub(crate) on_stall: Option<String>,
    /// Post every verdict to this address, as JSON
    #[arg(long, value_name = "URL", env = "RINGLEADER_WEBHOOK", hide_env = true, hide_env_values = true,
          value_parser = hooks::address)]
    pub(crate) webhook: Option<String>,
    /// Form of what is posted: slack, generic, or a file of JSON with places such as {{/report/verdict/summary}}
    #[arg(long, value_name = "NAME|FILE", value_parser = Template::named)]
    pub(crate) webhook_template: Option<Template>,
    /// Serve a web page and Prometheus metrics; a bare port listens on localhost only
    #[arg(long, value_name = "ADDR", env = "RINGLEADER_SERVE", hide_env = true, value_parser = serve::address)]
    pub(crate) serve: Option<SocketAddr>,
    /// Where agents of many nodes meet: dir:PATH or etcd://HOST:PORT/PREFIX
    #[arg(long, value_name = "HUB", env = "RINGLEADER_HUB", hide_env = true)]
    pub(crate) hub: Option<String>,
    /// Do not query NCCL's RAS service
    #[arg(long, env = "RINGLEADER_NO_RAS", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) no_ras: bool,
    /// Print lines instead of the terminal view
    #[arg(long, env = "RINGLEADER_NO_SCREEN", hide_env = true, value_parser = FalseyValueParser::new())]
    pub(crate) no_screen: bool,
    /// If a rank is persistently late, record the timelines of the ranks of this machine for this many milliseconds,
    /// once per job, and report why it is late. The job must have been started with KINETO_USE_DAEMON=1 (a command after -- is)
    #[arg(long, value_name = "MS", env = "RINGLEADER_RECORD_LATE", hide_env = true,
          value_parser = clap::value_parser!(u32).range(100..=60_000), conflicts_with = "replay")]
    pub(crate) record_late: Option<u32>,
    /// Before a job has shown its rhythm, no pause shorter than this is a stall, seconds
    #[arg(long, hide = true, value_name = "SECONDS", default_value = "600", value_parser = seconds)]
    pub(crate) unstable_first_floor: f64,
    /// Name of this node in the hub, for tests of several on one machine
    #[arg(long, hide = true, value_name = "NAME")]
    pub(crate) unstable_node: Option<String>,
}

/// A day: for longer, leave the option out.
const MAX_S: f64 = 86_400.0;

fn number(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(format!("it is not between {least} and {most}"))
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    number(text, 0.1, MAX_S)
}

fn hold(text: &str) -> Result<f64, String> {
    number(text, 0.0, MAX_S)
}

fn interval(text: &str) -> Result<f64, String> {
    number(text, 0.05, 60.0)
}

fn factor(text: &str) -> Result<f64, String> {
    number(text, 1.5, 1000.0)
}
