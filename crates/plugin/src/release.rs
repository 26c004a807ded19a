//! Which release of NCCL has loaded the plugin: its interfaces do not tell, and not all that one release promises holds.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

/// The version of the NCCL that `variable` belongs to, as it numbers itself (2.26.2 is 22602); None if it cannot be asked.
///
/// # Safety
/// None of `variable`, which is only looked up. A library that has it and an `ncclGetVersion` is NCCL.
pub(crate) unsafe fn of(variable: *const c_void) -> Option<c_int> {
    let found = beside(variable, c"ncclGetVersion")?;
    // SAFETY: the signature since NCCL 2.0.
    let get: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(found) };
    let mut version = 0;
    // SAFETY: a place for the number.
    (unsafe { get(&raw mut version) } == 0).then_some(version)
}

/// A symbol of the loaded library that an address lies in.
fn beside(address: *const c_void, name: &CStr) -> Option<*mut c_void> {
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: a place for the answer; the address is not followed.
    if unsafe { libc::dladdr(address, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all zeros are such a struct, and the call has filled it.
    let path = unsafe { info.assume_init() }.dli_fname;
    if path.is_null() {
        return None;
    }
    // SAFETY: the loader's own string; nothing is loaded that is not.
    let library = unsafe { libc::dlopen(path, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: a library that is open, and a string.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: opened above; whoever loaded it keeps it.
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
        // SAFETY: nothing is asked of it.
        assert_eq!(unsafe { of((&raw const local).cast()) }, None);
    }
}
