//! NVLinks: state, other end and error counters.

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper_sys::bindings::field_id as fi;
use nvml_wrapper_sys::bindings::{
    NVML_NVLINK_MAX_LINKS, nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_GPU as TYPE_GPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_IBMNPU as TYPE_NPU,
    nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_SWITCH as TYPE_SWITCH,
};
use ringleader_node::NvLink;

use super::asker::{Asker, address};
use crate::sys::nvml::{self, Field};

/// Counters by link: the first three up to Hopper, the others since Blackwell.
const COUNTERS: &[(&str, u32)] = &[
    ("replay", fi::NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY),
    ("recovery", fi::NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY),
    ("crc", fi::NVML_FI_DEV_NVLINK_ERROR_DL_CRC),
    ("malformed-packets", fi::NVML_FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS),
    ("buffer-overruns", fi::NVML_FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS),
    ("receive-errors", fi::NVML_FI_DEV_NVLINK_COUNT_RCV_ERRORS),
    ("receive-remote-errors", fi::NVML_FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS),
    ("local-integrity-errors", fi::NVML_FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS),
    ("transmit-discards", fi::NVML_FI_DEV_NVLINK_COUNT_XMIT_DISCARDS),
    ("recoveries", fi::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS),
    ("failed-recoveries", fi::NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS),
    ("effective-errors", fi::NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS),
    ("symbol-errors", fi::NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS),
];
/// Fields asked in one call.
const BATCH: usize = 64;

/// All links of a GPU; empty where it has none.
pub(super) fn read(device: &Device<'_>, ask: &mut Asker) -> Vec<NvLink> {
    let field = [Field { id: fi::NVML_FI_DEV_NVLINK_LINK_COUNT, scope: 0 }];
    let n_links = ask
        .ask("nvmlDeviceGetFieldValues", || nvml::fields(device, &field))
        .and_then(|values| values.first()?.as_ref().ok().copied())
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(NVML_NVLINK_MAX_LINKS);
    let mut links = Vec::new();
    for number in 0..n_links.min(NVML_NVLINK_MAX_LINKS) {
        // Not supported: the GPU has no such link.
        let link = device.link_wrapper_for(number);
        let Some(active) = ask.ask("nvmlDeviceGetNvLinkState", || link.is_active()) else { continue };
        let mut read = NvLink { number, active: Some(active), ..NvLink::default() };
        if active {
            read.remote = ask
                .ask("nvmlDeviceGetNvLinkRemotePciInfo", || link.remote_pci_info())
                .map(|pci| address(&pci.bus_id))
                // What a virtual machine gets for a switch that it does not have.
                .filter(|address| !address.is_empty() && !address.starts_with("ffff"));
            read.remote_kind = ask
                .ask("nvmlDeviceGetNvLinkRemoteDeviceType", || nvml::link_remote_kind(device, number))
                .and_then(|kind| match kind {
                    TYPE_GPU => Some("gpu".to_owned()),
                    TYPE_SWITCH => Some("switch".to_owned()),
                    TYPE_NPU => Some("ibm-npu".to_owned()),
                    _ => None,
                });
        }
        links.push(read);
    }
    for (link, name, value) in counters(device, ask, &links) {
        if let Some(link) = links.iter_mut().find(|l| l.number == link) {
            link.counters.push((name.to_owned(), value, None));
        }
    }
    links
}

/// The second look at the counters.
pub(super) fn read_again(device: &Device<'_>, ask: &mut Asker, links: &mut [NvLink]) {
    for (link, name, value) in counters(device, ask, links) {
        let of = links.iter_mut().find(|l| l.number == link);
        let counter = of.and_then(|link| link.counters.iter_mut().find(|(other, _, _)| other == name));
        if let Some((_, _, later)) = counter {
            *later = Some(value);
        }
    }
}

/// Counters of the links that are up, in few calls. One that the GPU does not have is left out.
fn counters(device: &Device<'_>, ask: &mut Asker, links: &[NvLink]) -> Vec<(u32, &'static str, u64)> {
    // After the first look only those that answered are asked again.
    let is_known = |link: &NvLink, name: &str| {
        link.counters.is_empty() || link.counters.iter().any(|(other, _, _)| other == name)
    };
    let wanted: Vec<(u32, &'static str, Field)> = links
        .iter()
        .filter(|link| link.active == Some(true))
        .flat_map(|link| {
            let known = COUNTERS.iter().filter(|(name, _)| is_known(link, name));
            known.map(|(name, id)| (link.number, *name, Field { id: *id, scope: link.number }))
        })
        .collect();
    let mut counted = Vec::new();
    for batch in wanted.chunks(BATCH) {
        let fields: Vec<Field> = batch.iter().map(|(_, _, field)| *field).collect();
        let Some(values) = ask.ask("nvmlDeviceGetFieldValues", || nvml::fields(device, &fields)) else {
            break;
        };
        counted.extend(
            batch.iter().zip(values).filter_map(|((link, name, _), value)| {
                Some((*link, *name, u64::try_from(value.ok()?).ok()?))
            }),
        );
    }
    if counted.is_empty() {
        return counters_by_function(device, ask, links);
    }
    counted
}

/// The same by the function that is older than the fields.
fn counters_by_function(
    device: &Device<'_>,
    ask: &mut Asker,
    links: &[NvLink],
) -> Vec<(u32, &'static str, u64)> {
    let mut counted = Vec::new();
    for link in links.iter().filter(|link| link.active == Some(true)) {
        let of = device.link_wrapper_for(link.number);
        for (name, kind) in [
            ("replay", ErrorCounter::DlReplay),
            ("recovery", ErrorCounter::DlRecovery),
            ("crc", ErrorCounter::DlCrcFlit),
        ] {
            let value = ask.ask("nvmlDeviceGetNvLinkErrorCounter", || of.error_counter(kind));
            // A GPU that lacks one lacks them all.
            let Some(value) = value else { return counted };
            counted.push((link.number, name, value));
        }
    }
    counted
}
