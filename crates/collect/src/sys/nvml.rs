//! NVML's functions that nvml-wrapper 0.13 lacks. Signatures and layouts are those of nvml-wrapper-sys 0.10, which are
//! generated from NVIDIA's nvml.h; a library that lacks a function answers `FunctionNotFound`.

use std::mem::{MaybeUninit, size_of};

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_try};
use nvml_wrapper_sys::bindings as raw;

/// A field of a GPU: NVML's number, and the link it is about where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) id: u32,
    pub(crate) scope: u32,
}

/// What a GPU says of its place in the NVLink fabric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fabric {
    pub(crate) cluster: [u8; 16],
    pub(crate) status: u32,
    pub(crate) clique: u32,
    pub(crate) state: u8,
    pub(crate) health_mask: Option<u32>,
    pub(crate) health_summary: Option<u8>,
}

/// Row remapping: rows for corrected and for uncorrected errors, pending, failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remapped {
    pub(crate) corrected: u32,
    pub(crate) uncorrected: u32,
    pub(crate) pending: bool,
    pub(crate) failed: bool,
}

/// Version word of NVML's versioned structs: size, and the version in the highest byte.
fn version<T>(number: u32) -> u32 {
    size_of::<T>() as u32 | number << 24
}

fn handle(device: &Device<'_>) -> raw::nvmlDevice_t {
    // SAFETY: the handle is used only while `device`, and with it the library, is borrowed by the caller.
    unsafe { device.handle() }
}

fn missing<E>(_: E) -> NvmlError {
    NvmlError::FunctionNotFound
}

/// Fields in one call, as NVML gives them; each is an error by itself. Numbers below zero and fractions are rounded
/// towards zero into an `i64`.
pub(crate) fn fields(
    device: &Device<'_>,
    wanted: &[Field],
) -> Result<Vec<Result<i64, NvmlError>>, NvmlError> {
    let lib = device.nvml().lib();
    let call = lib.nvmlDeviceGetFieldValues.as_ref().map_err(missing)?;
    // SAFETY: all zeros is a value of this struct of integers and a union of numbers.
    let empty: raw::nvmlFieldValue_t = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut values: Vec<raw::nvmlFieldValue_t> = wanted
        .iter()
        .map(|field| raw::nvmlFieldValue_t { fieldId: field.id, scopeId: field.scope, ..empty })
        .collect();
    let count = i32::try_from(values.len()).map_err(|_| NvmlError::InvalidArg)?;
    // SAFETY: the pointer is to `count` initialised structs that live across the call; NVML writes within them.
    nvml_try(unsafe { call(handle(device), count, values.as_mut_ptr()) })?;
    Ok(values.iter().map(number).collect())
}

fn number(field: &raw::nvmlFieldValue_t) -> Result<i64, NvmlError> {
    nvml_try(field.nvmlReturn)?;
    let value = field.value;
    // SAFETY, all arms: every bit pattern is a value of each member, and the union was initialised as a whole.
    #[allow(clippy::undocumented_unsafe_blocks, reason = "said once for all arms")]
    Ok(match field.valueType {
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_DOUBLE => (unsafe { value.dVal }) as i64,
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_INT => i64::from(unsafe { value.uiVal }),
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG => (unsafe { value.ulVal }) as i64,
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_LONG_LONG => (unsafe { value.ullVal }) as i64,
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_LONG_LONG => unsafe { value.sllVal },
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_SIGNED_INT => i64::from(unsafe { value.siVal }),
        raw::nvmlValueType_enum_NVML_VALUE_TYPE_UNSIGNED_SHORT => i64::from(unsafe { value.usVal }),
        other => return Err(NvmlError::UnexpectedVariant(other)),
    })
}

/// Reasons for the clocks, as NVML's bits. Its older name is asked where the newer is not there.
pub(crate) fn clock_reasons(device: &Device<'_>) -> Result<u64, NvmlError> {
    let lib = device.nvml().lib();
    let call = match lib.nvmlDeviceGetCurrentClocksEventReasons.as_ref() {
        Ok(call) => call,
        Err(_) => lib.nvmlDeviceGetCurrentClocksThrottleReasons.as_ref().map_err(missing)?,
    };
    let mut reasons = 0;
    // SAFETY: the pointer is to a number that lives across the call.
    nvml_try(unsafe { call(handle(device), &raw mut reasons) })?;
    Ok(reasons)
}

/// Row remapping.
pub(crate) fn remapped(device: &Device<'_>) -> Result<Remapped, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRemappedRows.as_ref().map_err(missing)?;
    let (mut corrected, mut uncorrected, mut pending, mut failed) = (0, 0, 0, 0);
    // SAFETY: the pointers are to numbers that live across the call.
    nvml_try(unsafe {
        call(handle(device), &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed)
    })?;
    Ok(Remapped { corrected, uncorrected, pending: pending != 0, failed: failed != 0 })
}

/// Banks of memory by how many spare rows they have left: low, and none.
pub(crate) fn banks_low_and_exhausted(device: &Device<'_>) -> Result<(u32, u32), NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetRowRemapperHistogram.as_ref().map_err(missing)?;
    let mut banks = raw::nvmlRowRemapperHistogramValues_t { max: 0, high: 0, partial: 0, low: 0, none: 0 };
    // SAFETY: the pointer is to a struct of NVML's layout that lives across the call.
    nvml_try(unsafe { call(handle(device), &raw mut banks) })?;
    Ok((banks.low, banks.none))
}

/// Degrees left until the target limit.
pub(crate) fn margin_c(device: &Device<'_>) -> Result<i32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetMarginTemperature.as_ref().map_err(missing)?;
    let version = version::<raw::nvmlMarginTemperature_t>(1);
    let mut margin = raw::nvmlMarginTemperature_t { version, marginTemperature: 0 };
    // SAFETY: the pointer is to a struct of the stated version that lives across the call.
    nvml_try(unsafe { call(handle(device), &raw mut margin) })?;
    Ok(margin.marginTemperature)
}

/// More uncorrected errors of on-chip memories than NVIDIA accepts.
pub(crate) fn sram_threshold_exceeded(device: &Device<'_>) -> Result<bool, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetSramEccErrorStatus.as_ref().map_err(missing)?;
    // SAFETY: all zeros is a value of this struct of integers.
    let mut status: raw::nvmlEccSramErrorStatus_t = unsafe { MaybeUninit::zeroed().assume_init() };
    status.version = version::<raw::nvmlEccSramErrorStatus_t>(1);
    // SAFETY: the pointer is to a struct of the stated version that lives across the call.
    nvml_try(unsafe { call(handle(device), &raw mut status) })?;
    Ok(status.bThresholdExceeded != 0)
}

/// Place in the fabric: the newest form of the answer that the library knows.
pub(crate) fn fabric(device: &Device<'_>) -> Result<Fabric, NvmlError> {
    let lib = device.nvml().lib();
    if let Ok(call) = lib.nvmlDeviceGetGpuFabricInfoV.as_ref() {
        for number in [3, 2] {
            // SAFETY: all zeros is a value of this struct of integers.
            let mut info: raw::nvmlGpuFabricInfo_v3_t = unsafe { MaybeUninit::zeroed().assume_init() };
            info.version = match number {
                3 => version::<raw::nvmlGpuFabricInfo_v3_t>(3),
                _ => version::<raw::nvmlGpuFabricInfo_v2_t>(2),
            };
            // SAFETY: the pointer is to a struct that lives across the call. Version 2 is a prefix of version 3, so
            // that NVML writes within it in either case.
            match nvml_try(unsafe { call(handle(device), &raw mut info) }) {
                Ok(()) => {
                    return Ok(Fabric {
                        cluster: info.clusterUuid,
                        status: info.status,
                        clique: info.cliqueId,
                        state: info.state,
                        health_mask: Some(info.healthMask),
                        health_summary: (number == 3).then_some(info.healthSummary),
                    });
                }
                // The library is older than this version of the struct: NVML says so in one of these ways.
                Err(NvmlError::UnexpectedVariant(25) | NvmlError::InvalidArg | NvmlError::NotSupported) => {}
                Err(error) => return Err(error),
            }
        }
    }
    let call = lib.nvmlDeviceGetGpuFabricInfo.as_ref().map_err(missing)?;
    let mut info = raw::nvmlGpuFabricInfo_t { clusterUuid: [0; 16], status: 0, cliqueId: 0, state: 0 };
    // SAFETY: the pointer is to a struct of NVML's layout that lives across the call.
    nvml_try(unsafe { call(handle(device), &raw mut info) })?;
    Ok(Fabric {
        cluster: info.clusterUuid,
        status: info.status,
        clique: info.cliqueId,
        state: info.state,
        health_mask: None,
        health_summary: None,
    })
}

/// What is at the other end of a link, as NVML's number. The wrapper's own function always returns `Unknown`.
pub(crate) fn link_remote_kind(device: &Device<'_>, link: u32) -> Result<u32, NvmlError> {
    let call = device.nvml().lib().nvmlDeviceGetNvLinkRemoteDeviceType.as_ref().map_err(missing)?;
    let mut kind = raw::nvmlIntNvLinkDeviceType_enum_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
    // SAFETY: the pointer is to a number that lives across the call.
    nvml_try(unsafe { call(handle(device), link, &raw mut kind) })?;
    Ok(kind)
}
