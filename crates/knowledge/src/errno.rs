//! errno of Linux by number, name and text, and the spellings that programs use.
//!
//! Source: `include/uapi/asm-generic/errno.h` of Linux and `strerror` of glibc. Python writes `[Errno 111] Connection
//! refused`, Rust `Connection refused (os error 111)`, C programs `: Connection refused`, `errno=111`, `errno 111` or
//! `error: Connection refused (111)`, Go the text in lower case, kernels and drivers a negative number or the name.

/// One errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno {
    /// Number on x86-64 and arm64.
    pub number: u8,
    /// `ECONNREFUSED`.
    pub name: &'static str,
    /// `strerror` of glibc.
    pub text: &'static str,
}

/// Prefixes after which a number is an errno.
const FRAMES: &[&str] =
    &["[Errno ", "errno=", "errno = ", "errno: ", "errno:", "errno ", "(errno ", "os error "];

/// Texts that also occur in ordinary prose: they count only at the end of a line or before a closing mark.
const PROSE: &[&str] = &[
    "Success",
    "No data available",
    "Streams pipe error",
    "Level 2 halted",
    "Level 3 halted",
    "Level 3 reset",
    "Name not unique on network",
    "No child processes",
    "Is a directory",
    "File exists",
    "Interrupted system call",
    "Operation already in progress",
    "Operation now in progress",
    "Protocol error",
];

/// Errors of the file system, a server or another process: no program can prevent them, and they may be gone later.
const OF_THE_WORLD: &[&str] = &[
    "EIO",
    "EAGAIN",
    "ENOSPC",
    "EROFS",
    "EPIPE",
    "ENONET",
    "ENOLINK",
    "ECONNRESET",
    "ETIMEDOUT",
    "EHOSTUNREACH",
    "ESTALE",
    "EDQUOT",
];

impl Errno {
    /// Whether the cause is outside of the program that got it.
    pub fn is_of_the_world(&self) -> bool {
        OF_THE_WORLD.contains(&self.name)
    }
}

/// The errnos in the message of a Python exception: `[Errno 28] No space left on device`.
pub fn in_python(message: &str) -> impl Iterator<Item = &'static Errno> {
    let after = message.match_indices("[Errno ").filter_map(|(at, word)| message.get(at + word.len()..));
    after.filter_map(|rest| get(rest.split(']').next()?.parse().ok()?))
}

/// The errno of this number.
pub fn get(number: u8) -> Option<&'static Errno> {
    ALL.binary_search_by_key(&number, |e| e.number).ok().and_then(|at| ALL.get(at))
}

/// The errno with this name.
pub fn named(name: &str) -> Option<&'static Errno> {
    ALL.iter().find(|e| e.name == name)
}

/// All errnos, by number.
pub fn all() -> &'static [Errno] {
    ALL
}

/// The errno that a line contains, in any spelling: a number in one of its usual frames, a name, or a text.
pub fn in_text(line: &str) -> Option<&'static Errno> {
    FRAMES.iter().find_map(|frame| by_number(line, frame)).or_else(|| by_name(line)).or_else(|| by_text(line))
}

fn by_number(line: &str, frame: &str) -> Option<&'static Errno> {
    line.match_indices(frame).find_map(|(at, _)| {
        let inside = frame.starts_with(|c: char| c.is_ascii_alphabetic())
            && line.get(..at)?.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let rest = line.get(at + frame.len()..)?;
        let rest = rest.strip_prefix('-').unwrap_or(rest);
        let n_digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = rest.get(..n_digits)?.parse().ok()?;
        get(number).filter(|_| !inside)
    })
}

fn by_name(line: &str) -> Option<&'static Errno> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| {
            word.len() >= 3
                && word.starts_with('E')
                && word.as_bytes().get(1).is_some_and(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
        })
        .find_map(named)
}

/// Finds a text where a message would have it: after a colon, a dash, a quote or a bracket, or at the start.
fn by_text(line: &str) -> Option<&'static Errno> {
    ALL.iter().filter(|e| !PROSE.contains(&e.text)).find(|e| stands(line, e.text))
}

fn stands(line: &str, text: &str) -> bool {
    let Some((first, others)) = text.split_at_checked(1) else { return false };
    line.match_indices(others).any(|(at, _)| {
        let Some(start) = at.checked_sub(1) else { return false };
        let Some(initial) = line.get(start..at) else { return false };
        let before = line.get(..start).unwrap_or_default().trim_end().chars().next_back();
        let after = line.get(at + others.len()..).and_then(|rest| rest.chars().next());
        initial.eq_ignore_ascii_case(first)
            && before.is_none_or(|c| {
                matches!(c, ':' | '-' | '\'' | '"' | '`' | '(' | '[' | ']' | ')' | ',' | '=' | '>')
            })
            && !after.is_some_and(char::is_alphanumeric)
    })
}

static ALL: &[Errno] = &[
    Errno { number: 1, name: "EPERM", text: "Operation not permitted" },
    Errno { number: 2, name: "ENOENT", text: "No such file or directory" },
    Errno { number: 3, name: "ESRCH", text: "No such process" },
    Errno { number: 4, name: "EINTR", text: "Interrupted system call" },
    Errno { number: 5, name: "EIO", text: "Input/output error" },
    Errno { number: 6, name: "ENXIO", text: "No such device or address" },
    Errno { number: 7, name: "E2BIG", text: "Argument list too long" },
    Errno { number: 8, name: "ENOEXEC", text: "Exec format error" },
    Errno { number: 9, name: "EBADF", text: "Bad file descriptor" },
    Errno { number: 10, name: "ECHILD", text: "No child processes" },
    Errno { number: 11, name: "EAGAIN", text: "Resource temporarily unavailable" },
    Errno { number: 12, name: "ENOMEM", text: "Cannot allocate memory" },
    Errno { number: 13, name: "EACCES", text: "Permission denied" },
    Errno { number: 14, name: "EFAULT", text: "Bad address" },
    Errno { number: 15, name: "ENOTBLK", text: "Block device required" },
    Errno { number: 16, name: "EBUSY", text: "Device or resource busy" },
    Errno { number: 17, name: "EEXIST", text: "File exists" },
    Errno { number: 18, name: "EXDEV", text: "Invalid cross-device link" },
    Errno { number: 19, name: "ENODEV", text: "No such device" },
    Errno { number: 20, name: "ENOTDIR", text: "Not a directory" },
    Errno { number: 21, name: "EISDIR", text: "Is a directory" },
    Errno { number: 22, name: "EINVAL", text: "Invalid argument" },
    Errno { number: 23, name: "ENFILE", text: "Too many open files in system" },
    Errno { number: 24, name: "EMFILE", text: "Too many open files" },
    Errno { number: 25, name: "ENOTTY", text: "Inappropriate ioctl for device" },
    Errno { number: 26, name: "ETXTBSY", text: "Text file busy" },
    Errno { number: 27, name: "EFBIG", text: "File too large" },
    Errno { number: 28, name: "ENOSPC", text: "No space left on device" },
    Errno { number: 29, name: "ESPIPE", text: "Illegal seek" },
    Errno { number: 30, name: "EROFS", text: "Read-only file system" },
    Errno { number: 31, name: "EMLINK", text: "Too many links" },
    Errno { number: 32, name: "EPIPE", text: "Broken pipe" },
    Errno { number: 33, name: "EDOM", text: "Numerical argument out of domain" },
    Errno { number: 34, name: "ERANGE", text: "Numerical result out of range" },
    Errno { number: 35, name: "EDEADLOCK", text: "Resource deadlock avoided" },
    Errno { number: 36, name: "ENAMETOOLONG", text: "File name too long" },
    Errno { number: 37, name: "ENOLCK", text: "No locks available" },
    Errno { number: 38, name: "ENOSYS", text: "Function not implemented" },
    Errno { number: 39, name: "ENOTEMPTY", text: "Directory not empty" },
    Errno { number: 40, name: "ELOOP", text: "Too many levels of symbolic links" },
    Errno { number: 42, name: "ENOMSG", text: "No message of desired type" },
    Errno { number: 43, name: "EIDRM", text: "Identifier removed" },
    Errno { number: 44, name: "ECHRNG", text: "Channel number out of range" },
    Errno { number: 45, name: "EL2NSYNC", text: "Level 2 not synchronized" },
    Errno { number: 46, name: "EL3HLT", text: "Level 3 halted" },
    Errno { number: 47, name: "EL3RST", text: "Level 3 reset" },
    Errno { number: 48, name: "ELNRNG", text: "Link number out of range" },
    Errno { number: 49, name: "EUNATCH", text: "Protocol driver not attached" },
    Errno { number: 50, name: "ENOCSI", text: "No CSI structure available" },
    Errno { number: 51, name: "EL2HLT", text: "Level 2 halted" },
    Errno { number: 52, name: "EBADE", text: "Invalid exchange" },
    Errno { number: 53, name: "EBADR", text: "Invalid request descriptor" },
    Errno { number: 54, name: "EXFULL", text: "Exchange full" },
    Errno { number: 55, name: "ENOANO", text: "No anode" },
    Errno { number: 56, name: "EBADRQC", text: "Invalid request code" },
    Errno { number: 57, name: "EBADSLT", text: "Invalid slot" },
    Errno { number: 59, name: "EBFONT", text: "Bad font file format" },
    Errno { number: 60, name: "ENOSTR", text: "Device not a stream" },
    Errno { number: 61, name: "ENODATA", text: "No data available" },
    Errno { number: 62, name: "ETIME", text: "Timer expired" },
    Errno { number: 63, name: "ENOSR", text: "Out of streams resources" },
    Errno { number: 64, name: "ENONET", text: "Machine is not on the network" },
    Errno { number: 65, name: "ENOPKG", text: "Package not installed" },
    Errno { number: 66, name: "EREMOTE", text: "Object is remote" },
    Errno { number: 67, name: "ENOLINK", text: "Link has been severed" },
    Errno { number: 68, name: "EADV", text: "Advertise error" },
    Errno { number: 69, name: "ESRMNT", text: "Srmount error" },
    Errno { number: 70, name: "ECOMM", text: "Communication error on send" },
    Errno { number: 71, name: "EPROTO", text: "Protocol error" },
    Errno { number: 72, name: "EMULTIHOP", text: "Multihop attempted" },
    Errno { number: 73, name: "EDOTDOT", text: "RFS specific error" },
    Errno { number: 74, name: "EBADMSG", text: "Bad message" },
    Errno { number: 75, name: "EOVERFLOW", text: "Value too large for defined data type" },
    Errno { number: 76, name: "ENOTUNIQ", text: "Name not unique on network" },
    Errno { number: 77, name: "EBADFD", text: "File descriptor in bad state" },
    Errno { number: 78, name: "EREMCHG", text: "Remote address changed" },
    Errno { number: 79, name: "ELIBACC", text: "Can not access a needed shared library" },
    Errno { number: 80, name: "ELIBBAD", text: "Accessing a corrupted shared library" },
    Errno { number: 81, name: "ELIBSCN", text: ".lib section in a.out corrupted" },
    Errno { number: 82, name: "ELIBMAX", text: "Attempting to link in too many shared libraries" },
    Errno { number: 83, name: "ELIBEXEC", text: "Cannot exec a shared library directly" },
    Errno { number: 84, name: "EILSEQ", text: "Invalid or incomplete multibyte or wide character" },
    Errno { number: 85, name: "ERESTART", text: "Interrupted system call should be restarted" },
    Errno { number: 86, name: "ESTRPIPE", text: "Streams pipe error" },
    Errno { number: 87, name: "EUSERS", text: "Too many users" },
    Errno { number: 88, name: "ENOTSOCK", text: "Socket operation on non-socket" },
    Errno { number: 89, name: "EDESTADDRREQ", text: "Destination address required" },
    Errno { number: 90, name: "EMSGSIZE", text: "Message too long" },
    Errno { number: 91, name: "EPROTOTYPE", text: "Protocol wrong type for socket" },
    Errno { number: 92, name: "ENOPROTOOPT", text: "Protocol not available" },
    Errno { number: 93, name: "EPROTONOSUPPORT", text: "Protocol not supported" },
    Errno { number: 94, name: "ESOCKTNOSUPPORT", text: "Socket type not supported" },
    Errno { number: 95, name: "ENOTSUP", text: "Operation not supported" },
    Errno { number: 96, name: "EPFNOSUPPORT", text: "Protocol family not supported" },
    Errno { number: 97, name: "EAFNOSUPPORT", text: "Address family not supported by protocol" },
    Errno { number: 98, name: "EADDRINUSE", text: "Address already in use" },
    Errno { number: 99, name: "EADDRNOTAVAIL", text: "Cannot assign requested address" },
    Errno { number: 100, name: "ENETDOWN", text: "Network is down" },
    Errno { number: 101, name: "ENETUNREACH", text: "Network is unreachable" },
    Errno { number: 102, name: "ENETRESET", text: "Network dropped connection on reset" },
    Errno { number: 103, name: "ECONNABORTED", text: "Software caused connection abort" },
    Errno { number: 104, name: "ECONNRESET", text: "Connection reset by peer" },
    Errno { number: 105, name: "ENOBUFS", text: "No buffer space available" },
    Errno { number: 106, name: "EISCONN", text: "Transport endpoint is already connected" },
    Errno { number: 107, name: "ENOTCONN", text: "Transport endpoint is not connected" },
    Errno { number: 108, name: "ESHUTDOWN", text: "Cannot send after transport endpoint shutdown" },
    Errno { number: 109, name: "ETOOMANYREFS", text: "Too many references: cannot splice" },
    Errno { number: 110, name: "ETIMEDOUT", text: "Connection timed out" },
    Errno { number: 111, name: "ECONNREFUSED", text: "Connection refused" },
    Errno { number: 112, name: "EHOSTDOWN", text: "Host is down" },
    Errno { number: 113, name: "EHOSTUNREACH", text: "No route to host" },
    Errno { number: 114, name: "EALREADY", text: "Operation already in progress" },
    Errno { number: 115, name: "EINPROGRESS", text: "Operation now in progress" },
    Errno { number: 116, name: "ESTALE", text: "Stale file handle" },
    Errno { number: 117, name: "EUCLEAN", text: "Structure needs cleaning" },
    Errno { number: 118, name: "ENOTNAM", text: "Not a XENIX named type file" },
    Errno { number: 119, name: "ENAVAIL", text: "No XENIX semaphores available" },
    Errno { number: 120, name: "EISNAM", text: "Is a named type file" },
    Errno { number: 121, name: "EREMOTEIO", text: "Remote I/O error" },
    Errno { number: 122, name: "EDQUOT", text: "Disk quota exceeded" },
    Errno { number: 123, name: "ENOMEDIUM", text: "No medium found" },
    Errno { number: 124, name: "EMEDIUMTYPE", text: "Wrong medium type" },
    Errno { number: 125, name: "ECANCELED", text: "Operation canceled" },
    Errno { number: 126, name: "ENOKEY", text: "Required key not available" },
    Errno { number: 127, name: "EKEYEXPIRED", text: "Key has expired" },
    Errno { number: 128, name: "EKEYREVOKED", text: "Key has been revoked" },
    Errno { number: 129, name: "EKEYREJECTED", text: "Key was rejected by service" },
    Errno { number: 130, name: "EOWNERDEAD", text: "Owner died" },
    Errno { number: 131, name: "ENOTRECOVERABLE", text: "State not recoverable" },
    Errno { number: 132, name: "ERFKILL", text: "Operation not possible due to RF-kill" },
];
