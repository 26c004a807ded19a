//! Pods through the API of Kubernetes: found by a label selector, entered by exec.
//!
//! The client, its credentials and its TLS are those of the `kube` crate, which reads the user's kubeconfig as kubectl
//! does, or the service account of the pod that this runs in. It speaks async; each asking thread waits for its own pod.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, ListParams};
use kube::{Client, Config};
use ringleader_check::fleet::{Silence, SilenceKind};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;

use super::spool::Output;
use super::ssh::{no_program, no_report};
use super::{Input, Limits, Ran, Transport, last_line, timed_out};

/// Bytes of standard error that are kept.
const MAX_SAID: u64 = 8192;
/// How often is looked whether anybody still wants the answer.
const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Kube {
    runtime: Runtime,
    api: Api<Pod>,
    container: Option<String>,
    patience: Duration,
}

impl Kube {
    /// A client as kubectl would be.
    pub(crate) fn connect(
        namespace: Option<&str>,
        container: Option<&str>,
        patience: Duration,
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| format!("the runtime of the client: {error}"))?;
        let client = runtime
            .block_on(async {
                let mut config = Config::infer().await.map_err(|error| chain(&error))?;
                config.connect_timeout = Some(patience);
                Client::try_from(config).map_err(|error| chain(&error))
            })
            .map_err(|why| format!("the Kubernetes API cannot be reached: {why}"))?;
        let api = match namespace {
            Some(name) => Api::namespaced(client, name),
            None => Api::default_namespaced(client),
        };
        Ok(Self { runtime, api, container: container.map(str::to_owned), patience })
    }

    /// Pods that the selector chooses and that have not ended.
    pub(crate) fn pods(&self, selector: &str) -> Result<Vec<String>, String> {
        let list = ListParams::default().labels(selector);
        let listed = async { tokio::time::timeout(self.patience * 4, self.api.list(&list)).await };
        let pods = match self.runtime.block_on(listed) {
            Ok(pods) => pods.map_err(|error| format!("list the pods of '{selector}': {}", chain(&error)))?,
            Err(_) => return Err(format!("list the pods of '{selector}': the API does not answer")),
        };
        let has_ended = |pod: &Pod| {
            let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
            matches!(phase, Some("Succeeded" | "Failed"))
        };
        let names: Vec<String> = pods
            .items
            .into_iter()
            .filter(|pod| !has_ended(pod))
            .filter_map(|pod| pod.metadata.name)
            .collect();
        if names.is_empty() { Err(format!("no running pod has the labels '{selector}'")) } else { Ok(names) }
    }

    async fn exec(
        &self,
        pod: &str,
        argv: &[String],
        input: &Input,
        mut output: Output<'_>,
    ) -> Result<Ran, Silence> {
        let params = AttachParams {
            container: self.container.clone(),
            stdin: matches!(input, Input::File(_)),
            stdout: true,
            stderr: true,
            tty: false,
            max_stdin_buf_size: Some(64 << 10),
            max_stdout_buf_size: Some(64 << 10),
            max_stderr_buf_size: Some(8 << 10),
        };
        let mut process =
            self.api.exec(pod, argv.to_vec(), &params).await.map_err(|error| silence(pod, &error))?;
        let (status, stdin) = (process.take_status(), process.stdin());
        let (stdout, stderr) = (process.stdout(), process.stderr());
        let feed = async {
            let (Input::File(path), Some(mut stdin)) = (input, stdin) else { return };
            if let Ok(mut file) = tokio::fs::File::open(path).await {
                // A process that ends early has said why.
                let _ = tokio::io::copy(&mut file, &mut stdin).await;
            }
            let _ = stdin.shutdown().await;
        };
        let mut said = Output::new(MAX_SAID, None);
        // Writing to a file here keeps nobody else from work: each asker waits on a thread of its own.
        tokio::join!(take(stdout, &mut output), take(stderr, &mut said), feed);
        let ((output, n_output, is_cut), (said, ..)) = (output.end(), said.end());
        let status = match status {
            Some(status) => status.await,
            None => None,
        };
        let mut said = String::from_utf8_lossy(&said).into_owned();
        let code = status.as_ref().and_then(exit_code);
        if code.is_none()
            && let Some(message) = status.and_then(|status| status.message)
        {
            said.push('\n');
            said.push_str(&message);
        }
        Ok(Ran { status: code, output, n_output, said, is_cut })
    }
}

impl Transport for Kube {
    fn ask(
        &self,
        host: &str,
        argv: &[String],
        input: &Input,
        output: Output<'_>,
        limits: &Limits<'_>,
    ) -> Result<Ran, Silence> {
        self.runtime.block_on(async {
            let mut work = Box::pin(self.exec(host, argv, input, output));
            loop {
                if let Ok(outcome) = tokio::time::timeout(TICK, &mut work).await {
                    return outcome;
                }
                let is_unwanted = limits.stop.load(std::sync::atomic::Ordering::Relaxed);
                if is_unwanted || Instant::now() >= limits.until {
                    return Err(timed_out(limits));
                }
            }
        })
    }

    fn explain(&self, host: &str, ran: &Ran) -> Silence {
        no_program(ran.status, &ran.said).unwrap_or_else(|| no_report(host, ran))
    }
}

/// Reads to the end, or until no more is of use.
async fn take(pipe: Option<impl AsyncRead + Unpin>, into: &mut Output<'_>) {
    let Some(mut pipe) = pipe else { return };
    let mut buffer = vec![0; 64 << 10];
    while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
        if !into.take(buffer.get(..n).unwrap_or_default()) {
            break;
        }
    }
}

/// The exit status that the API reports: success, or a cause `ExitCode`. None if the command was not run at all.
fn exit_code(status: &Status) -> Option<i32> {
    if status.status.as_deref() == Some("Success") {
        return Some(0);
    }
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes.iter().find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_ref()?.parse().ok()
}

fn silence(pod: &str, error: &kube::Error) -> Silence {
    let why = last_line(&chain(error), pod);
    let is_refused =
        ["401", "403", "Unauthorized", "Forbidden", "forbidden"].iter().any(|text| why.contains(text));
    let (kind, next) = if is_refused {
        (
            SilenceKind::Refused,
            "your role needs the verb create on pods/exec: kubectl auth can-i create pods/exec",
        )
    } else {
        (SilenceKind::Unreachable, "look at the pod with: kubectl describe pod POD")
    };
    Silence { kind, why, next: next.to_owned() }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text.replace('\n', " ")
}
