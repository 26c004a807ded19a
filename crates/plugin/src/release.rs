//! Determines which release of NCCL has loaded the plugin. The interface version is not enough: some releases
//! break what their interface promises.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

/// The version of the NCCL that `variable` belongs to, in NCCL's own numbering (2.26.2 is 22602); None if it
/// cannot be determined.
///
/// # Safety
/// Nothing is required of `variable`, which is only looked up. A library that contains it and an
/// `ncclGetVersion` is NCCL.
pub(crate) unsafe fn of(variable: *const c_void) -> Option<c_int> {
    let found = beside(variable, c"ncclGetVersion")?;
    // SAFETY: the signature since NCCL 2.0.
    let get: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(found) };
    let mut version = 0;
    // SAFETY: the argument is a valid place for the number.
    (unsafe { get(&raw mut version) } == 0).then_some(version)
}

/// A symbol of the loaded library that contains an address.
fn beside(address: *const c_void, name: &CStr) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the argument is a valid place for the result; the address is not dereferenced.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all zeros are a valid value of this struct, and the call has filled it.
    let path = unsafe { info.assume_init() }.dli_fname;
    if path.is_null() {
        return None;
    }
    // SAFETY: the loader's own string; `RTLD_NOLOAD` loads nothing new.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: an open library and a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: opened above; its owner keeps it loaded.
    unsafe { libc::dlclose(library) };
    (!found.is_null()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::{beside, of};
    use std::ffi::c_void;

    #[test]
    fn a_symbol_is_found_in_the_library_of_an_address() {
        let getpid = libc::getpid as *const c_void;
        assert_eq!(beside(getpid, c"getpid").map(<*mut c_void>::cast_const), Some(getpid));
        assert_eq!(beside(getpid, c"ncclGetVersion"), None);
        let local = 0;
        // SAFETY: the address is only looked up.
        assert_eq!(unsafe { of((&raw const local).cast()) }, None);
    }
}
