//! All that can be explained.

use ringleader_knowledge::{
    cause, cuda_error, errno, event, message, nccl_result, nccl_warn, rate, saying, status, sxid, symptom,
    variable, xid,
};
use ringleader_report::TextStyle;
use ringleader_report::page::Page;
use ringleader_rules::rules;

use crate::explain::answer::Topic;
use crate::explain::{terms, topics};

/// Every topic with a name that people type: all but texts of messages.
pub(super) fn topics() -> impl Iterator<Item = Topic> {
    let rules = rules::ALL.iter().filter(|r| cause::get(r.id).is_none());
    (symptom::all().iter().map(topics::symptom))
        .chain(terms::all())
        .chain(cause::all().iter().map(topics::of_cause))
        .chain(rules.map(|r| topics::of_rule(r)))
        .chain(xid::all().iter().map(topics::xid))
        .chain(nccl_result::all().iter().map(topics::result))
        .chain(cuda_error::all().iter().map(topics::cuda_error))
        .chain(variable::all().iter().map(topics::variable))
        .chain(variable::unread().iter().map(topics::unread))
        .chain(variable::traps().iter().map(topics::trap))
        .chain(event::all().iter().map(topics::event))
        .chain(rate::links().iter().map(topics::link))
        .chain(topics::families().into_iter().filter_map(topics::family))
        .chain(std::iter::once_with(topics::bandwidth))
        .chain(sxid::all().iter().map(topics::sxid))
        .chain(status::all().iter().filter(|s| !is_cuda_error(s)).map(topics::status))
        .chain(errno::all().iter().map(topics::errno))
}

/// An error that the table of CUDA's errors has, too.
fn is_cuda_error(status: &status::Status) -> bool {
    let number = status.number.and_then(|n| u16::try_from(n).ok());
    status.family().id == "cuda" && number.and_then(cuda_error::get).is_some()
}

/// The names of everything: what each row of each table is found by.
pub fn names() -> Vec<String> {
    let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<String>>();
    let mut names: Vec<String> = cause::all().iter().map(|c| c.cause.id().to_owned()).collect();
    names.extend(rules::ALL.iter().filter(|r| cause::get(r.id).is_none()).map(|r| r.id.to_owned()));
    names.extend(variable::all().iter().map(|v| v.name.to_owned()));
    names.extend(variable::aliases().iter().map(|(alias, _)| (*alias).to_owned()));
    names.extend(variable::unread().iter().map(|u| u.name.to_owned()));
    names.extend(variable::traps().iter().map(|t| format!("trap {}", t.id)));
    names.extend(event::all().iter().map(|e| format!("event {}", e.id)));
    names.extend(nccl_result::all().iter().map(|r| r.name.to_owned()));
    names
        .extend(cuda_error::all().iter().flat_map(|e| [e.name.to_owned(), format!("CUDA error {}", e.code)]));
    names.extend(xid::all().iter().map(|x| format!("xid {}", x.code)));
    names.extend(sxid::all().iter().map(|s| format!("sxid {}", s.code)));
    names.extend(rate::links().iter().map(|l| l.name.to_owned()));
    names.extend(own(&topics::families()));
    names.extend(own(&["busbw"]));
    names.extend(symptom::all().iter().map(|s| format!("symptom {}", s.id)));
    names.extend(status::all().iter().filter(|s| !is_cuda_error(s)).map(status::Status::full_name));
    names.extend(errno::all().iter().map(|e| e.name.to_owned()));
    names.extend(terms::names().map(str::to_owned));
    names
}

/// What replaces a row of texts.
pub fn messages() -> impl Iterator<Item = String> {
    let warns = nccl_warn::all().iter().map(topics::warn_name);
    warns.chain(saying::all().iter().map(topics::text_of))
}

/// The page that lists what can be explained.
pub fn catalog(look: &TextStyle) -> String {
    let mut page = Page::new(*look);
    page.item("", "What can be explained, and how to ask for it:");
    let rows: [(&str, String, &str); 15] = [
        ("symptoms", format!("{}, in your own words", symptom::all().len()), "my job hangs"),
        ("causes", format!("{}, by what a verdict names", cause::all().len()), "skipped-collective"),
        ("words", format!("{}, of a report and of watch", terms::all().count()), "culprit"),
        ("Xids", format!("{}, of NVIDIA's driver in the kernel log", xid::all().len()), "xid 79"),
        ("SXids", format!("{}, of NVSwitches in the kernel log", sxid::all().len()), "sxid 11001"),
        ("NCCL results", format!("{} codes", nccl_result::all().len()), "ncclSystemError"),
        ("NCCL warnings", format!("{} texts", nccl_warn::all().len()), "\"Duplicate GPU detected\""),
        ("CUDA errors", cuda_error::all().len().to_string(), "CUDA error 700"),
        (
            "statuses",
            format!("{}, of libraries, MPI, Slurm and Kubernetes", status::all().len()),
            "IBV_WC_RETRY_EXC_ERR",
        ),
        ("variables", format!("{}, of NCCL, PyTorch and CUDA", variable::all().len()), "NCCL_IB_TIMEOUT"),
        ("settings", format!("and {} ways to be misread", variable::traps().len()), "NCCL_IB_DISABLE=true"),
        ("folklore", format!("{} names that nothing reads", variable::unread().len()), "NCCL_TIMEOUT"),
        ("links", "rates, and bandwidth that nodes reach".to_owned(), "busbw"),
        ("pasted lines", format!("{} texts that programs print", message::all().len()), "'NCCL WARN …'"),
        ("checks", format!("{}, of a node", ringleader_check::checks::ALL.len()), "job-processes"),
    ];
    page.out.push('\n');
    for (what, how_many, example) in rows {
        page.item(&format!("  {what:<14} "), &how_many);
        page.command(&" ".repeat(17), &format!("ringleader explain {example}"));
    }
    page.out.push('\n');
    page.item("", "All of one kind, a row each:");
    page.command("  ", "ringleader explain --list KIND");
    page.item("  KIND is one of ", &super::kinds().join(", "));
    let mut section = "";
    page.heading("causes");
    for cause in cause::all() {
        if cause.section != section {
            section = cause.section;
            page.row(&format!("  {section}"));
        }
        page.item(&format!("    {:<29} ", cause.cause), cause.meaning);
    }
    page.out
}
