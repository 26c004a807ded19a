//! Where steps begin and end: made timelines of one rank.

use ringleader_model::{DeviceWork, HostSpan, Recorder, RuntimeCall, SpanKind, StepMark, Timeline, WorkKind};
use ringleader_trace::analyse;
use ringleader_trace::steps::StepSource;

/// Kernels one after the other, 100 µs each, launched 50 µs before; `None` as a launch says that it is not in the file.
fn timeline(kernels: &[(&str, bool)]) -> Timeline {
    let mut timeline = Timeline::new(Recorder::Torch);
    timeline.names.push("cudaLaunchKernel".into());
    for (at, (name, is_launched)) in kernels.iter().enumerate() {
        let place = timeline.names.iter().position(|known| **known == **name).unwrap_or_else(|| {
            timeline.names.push((*name).into());
            timeline.names.len() - 1
        });
        let start_ns = 1_000_000 + at as i64 * 100_000;
        let link = at as u32 + 1;
        if *is_launched {
            timeline.host_spans.push(HostSpan {
                start_ns: start_ns - 50_000,
                end_ns: start_ns - 45_000,
                name: 0,
                thread: 1,
                kind: SpanKind::Runtime(RuntimeCall::Launch),
                link,
            });
        }
        timeline.work.push(DeviceWork {
            start_ns,
            end_ns: start_ns + 100_000,
            name: place as u32,
            stream: 7,
            kind: WorkKind::Compute,
            correlation: link,
            call: 0,
            size_bytes: 0,
            n_blocks: 1,
        });
    }
    timeline
}

#[test]
fn a_layer_is_no_step() {
    let mut step = vec!["embed"];
    (0..24).for_each(|_| step.extend(["norm", "gemm", "gelu"]));
    step.push("loss");
    (0..24).for_each(|_| step.extend(["gemm_backward", "gelu_backward", "norm_backward"]));
    step.extend(["multi_tensor_apply_kernel"; 3]);
    let kernels: Vec<(&str, bool)> =
        std::iter::repeat_n(&step, 6).flatten().map(|name| (*name, true)).collect();
    let timeline = timeline(&kernels);
    let analysis = analyse([(&timeline, None)]);
    assert_eq!(analysis.steps[0].found, StepSource::Repetition);
    let length = step.len() as i64 * 100_000;
    assert_eq!(analysis.step_ns, length);
    for step in analysis.steps[0].usual.iter().map(|at| &analysis.steps[0].all[*at as usize]) {
        assert_eq!(step.length_ns(), length);
    }
    // A step begins behind the optimizer.
    let window = analysis.steps[0].all[2].window;
    let first = analysis.views[0].work().iter().find(|w| w.start_ns >= window.0).unwrap();
    assert_eq!(analysis.views[0].timeline.name(first.name), "embed");
}

#[test]
fn what_was_launched_before_the_recording_is_of_no_step() {
    let mut kernels = vec![("late", false); 8];
    kernels.extend([("gemm", true); 30]);
    let mut timeline = timeline(&kernels);
    for number in 0..3 {
        let start_ns = 900_000 + (number as i64 * 10 + 3) * 100_000;
        timeline.steps.push(StepMark { number, start_ns, end_ns: start_ns + 900_000, bytes: (1, 2) });
    }
    let analysis = analyse([(&timeline, None)]);
    let of_late = analysis.steps[0].of_work.iter().take(8);
    assert!(of_late.clone().all(|step| *step == u32::MAX), "{:?}", of_late.collect::<Vec<_>>());
    // The first step begins where the GPU is done with what came before.
    assert_eq!(analysis.steps[0].all[0].window.0, timeline.work[7].end_ns);
}
