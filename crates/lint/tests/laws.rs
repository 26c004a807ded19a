//! Laws: any text is read without a panic, the order of files changes nothing, and neither does code without collectives.

use proptest::prelude::*;
use ringleader_lint::{Confidence, LintOptions, LintReport, SourceFile, lint};

/// Pieces of programs: mixed freely, most do not parse.
const PIECES: &[&str] = &[
    "import torch.distributed as dist\n",
    "from accelerate import Accelerator\n",
    "def f(rank, x):\n",
    "    if rank == 0:\n",
    "        dist.barrier()\n",
    "    for i in range(rank):\n",
    "    while True:\n",
    "        return x\n",
    "    try:\n",
    "    except ValueError:\n",
    "    finally:\n",
    "    with f(rank, x) as y:\n",
    "        yield f(x, rank)\n",
    "class A(A):\n",
    "    @property\n",
    "    def rank(self): return self.rank\n",
    "x = [f(y) for y in x if x[rank:]]\n",
    "f(*x, **{x: f})\n",
    "\t",
    "(",
    ")",
    ":",
    "\"\"\"",
    "é",
    "\\\n",
    "#SBATCH --nodes=2\n",
    "export NCCL_TIMEOUT=$(\n",
    "env:\n  - name: NCCL_DEBUG\n",
    "FROM x\nENV A=1 \\\n",
];

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(PIECES), 0..24).prop_map(|pieces| pieces.concat())
}

fn run(files: &[(&str, String)]) -> LintReport {
    let sources: Vec<SourceFile> = files
        .iter()
        .map(|(path, text)| SourceFile { path: (*path).to_owned(), text: text.clone() })
        .collect();
    lint(&sources, &LintOptions { least: Confidence::Low, ..LintOptions::default() })
}

fn said(report: &LintReport) -> Vec<String> {
    report.findings.iter().map(|f| format!("{:?} {} {}", f.place, f.rule, f.title)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_text_is_read(text in text(), path in prop::sample::select(vec!["a.py", "a.sh", "a.yaml", "Dockerfile", "a"])) {
        run(&[(path, text)]);
    }

    #[test]
    fn the_order_of_files_changes_nothing(a in text(), b in text()) {
        let one = run(&[("a.py", a.clone()), ("b.py", b.clone())]);
        let other = run(&[("b.py", b), ("a.py", a)]);
        prop_assert_eq!(said(&one), said(&other));
    }

    #[test]
    fn code_without_collectives_adds_nothing(n in 0_usize..20) {
        let bug = "import torch.distributed as dist\ndef f(rank):\n    if rank == 0:\n        dist.barrier()\n";
        let alone = run(&[("a.py", bug.to_owned())]);
        let quiet = format!("def g(x):\n    return x + {n}\n");
        let both = run(&[("a.py", bug.to_owned()), ("b.py", quiet)]);
        prop_assert_eq!(said(&alone).len(), 1);
        prop_assert_eq!(said(&alone), said(&both));
    }
}

#[test]
fn depth_is_bounded() {
    let head = "import torch.distributed as dist\ndef f(rank):\n    x = ";
    let tail = "\n    if rank == 0:\n        dist.barrier()\n";
    let sum = (0..2_900).map(|n| format!("a{n}")).collect::<Vec<_>>().join(" + ");
    let deep = [sum, format!("{}rank", "-".repeat(2_900)), format!("rank{}", ".b".repeat(2_900))];
    for expression in deep {
        let report = run(&[("a.py", format!("{head}{expression}{tail}"))]);
        assert_eq!(report.findings.len(), 1, "{:?}", said(&report));
    }
    // What nests deeper is not read, and a note says so.
    let report = run(&[("a.py", format!("{head}{}{tail}", vec!["a"; 40_000].join(" + ")))]);
    assert_eq!((report.findings.len(), report.notes.len()), (0, 1));
    // Functions and classes that go round in circles end.
    let round = "def g(rank):\n    return h(rank)\ndef h(rank):\n    return g(rank)\nclass A(B):\n    pass\nclass B(A):\n    pass\n";
    assert_eq!(run(&[("a.py", format!("{head}g(rank){tail}{round}"))]).findings.len(), 1);
}
