//! `exec`: a program that a program becomes is on its node, too.

use core::ffi::{CStr, c_char, c_int};
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;

use toehold_node::why::Reason;

use super::variadic::{Arguments, variadic};
use crate::borrower::{is_borrower, leave_behind};
use crate::inside::{Inside, is_in_call};
use crate::memory::is_readable;
use crate::{next, node, relay, rights, start};

pub(super) type Strings = *const *const c_char;

const PRELOAD: &CStr = c"LD_PRELOAD";

/// The variables of the environment that a program of the node has.
const NEEDED: [&CStr; 8] = [
    PRELOAD,
    c"TOEHOLD_FABRIC",
    c"TOEHOLD_NODE",
    c"TOEHOLD_NETWORKS",
    c"TOEHOLD_STATS",
    c"TOEHOLD_IO_URING",
    c"TOEHOLD_KEEPER",
    c"TOEHOLD_QUIET",
];

/// The variable that says which listeners a program inherits.
const LISTENERS: &CStr = c"TOEHOLD_LISTENERS";

/// The values of those variables when this process began. Programs clear their environment before
/// others take over, which have listeners of theirs (Dovecot, Postfix).
static AT_FIRST: OnceLock<[Option<CString>; NEEDED.len()]> = OnceLock::new();

/// Remembers the variables for the programs that this one becomes.
pub(crate) fn remember() {
    let _ = AT_FIRST.get_or_init(|| {
        NEEDED.map(|name| {
            let value = value_of(name)?;
            if name != PRELOAD {
                return Some(value);
            }
            // A program that has cleared its environment has cleared the other preloaded libraries for good.
            CString::new(library_of(value.to_bytes())?).ok()
        })
    });
}

/// The library's path in a value of LD_PRELOAD.
fn library_of(preloaded: &[u8]) -> Option<&[u8]> {
    let mut paths = preloaded.split(|byte| matches!(byte, b':' | b' '));
    paths.find(|path| path.ends_with(b"libtoehold.so"))
}

/// The present value of a variable.
fn value_of(name: &CStr) -> Option<CString> {
    // SAFETY: the name is a C string. The value is copied at once, before another thread may change
    // the environment.
    let value = unsafe { libc::getenv(name.as_ptr()).as_ref() }?;
    // SAFETY: `value` points to a C string of the environment, which is copied at once.
    Some(unsafe { CStr::from_ptr(value) }.to_owned())
}

/// The value of a variable that the new environment lacks. It is the value in this process, or the one before
/// the whole environment was cleared. A program that takes the library alone out of the environment wants to
/// be without it.
fn missing(at: usize) -> Option<CString> {
    let value = value_of(NEEDED[at]);
    let is_cleared = || !NEEDED[1..].iter().any(|name| value_of(name).is_some());
    value.or_else(|| AT_FIRST.get()?[at].clone().filter(|_| is_cleared()))
}

/// Whether a program with this environment, when it is complete, is to have the library.
///
/// # Safety
///
/// `given` is null or a list of C strings that ends with null.
unsafe fn is_to_have_library(given: Strings) -> bool {
    let mut next = given;
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    while !next.is_null() && !unsafe { next.read() }.is_null() {
        // SAFETY: `next` points to an entry that is not null, so it is a C string of the list,
        // which the caller keeps for this call.
        let entry = unsafe { CStr::from_ptr(next.read()) };
        if let Some(value) = value_in(entry, PRELOAD) {
            return library_of(value).is_some();
        }
        // SAFETY: `next` points to an entry that is not null, so the list, which the caller keeps
        // for this call, has one more.
        next = unsafe { next.add(1) };
    }
    missing(0).is_some_and(|value| library_of(value.to_bytes()).is_some())
}

/// An environment for another program.
pub(super) struct Environment {
    /// The entries that were added, or changed.
    own: Vec<CString>,
    list: Vec<*const c_char>,
}

impl Environment {
    /// The program's own environment, with the entries that it lacks.
    ///
    /// # Safety
    ///
    /// `given` is null or a list of C strings that ends with null.
    unsafe fn complete(given: Strings) -> Environment {
        let mut list = Vec::new();
        let mut next = given;
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        while !next.is_null() && !unsafe { next.read() }.is_null() {
            // SAFETY: `next` points to an entry of the list, which the caller keeps for this call.
            list.push(unsafe { next.read() });
            // SAFETY: `next` points to an entry that is not null, so the list, which the caller
            // keeps for this call, has one more.
            next = unsafe { next.add(1) };
        }
        // SAFETY: the entries are C strings of the list, which the caller keeps for this call.
        let has = |name: &CStr| list.iter().any(|entry| unsafe { is_of(*entry, name) });
        let lacking = (0..NEEDED.len()).filter(|&at| !has(NEEDED[at]));
        let mut own: Vec<CString> = lacking
            .filter_map(|at| {
                let value = missing(at)?;
                CString::new([NEEDED[at].to_bytes(), b"=", value.to_bytes()].concat()).ok()
            })
            .collect();
        // SAFETY: the entries are C strings of the list, which the caller keeps for this call.
        list.retain(|entry| !unsafe { is_of(*entry, LISTENERS) });
        own.extend(rights::listeners());
        list.extend(own.iter().map(|entry| entry.as_ptr()));
        list.push(core::ptr::null());
        Environment { own, list }
    }

    pub(super) fn as_ptr(&self) -> Strings {
        debug_assert!(self.own.len() < self.list.len());
        self.list.as_ptr()
    }
}

/// Whether an entry is the variable's.
///
/// # Safety
///
/// The entry is a C string.
unsafe fn is_of(entry: *const c_char, name: &CStr) -> bool {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    value_in(unsafe { CStr::from_ptr(entry) }, name).is_some()
}

/// The value of an entry, if it is the variable's.
fn value_in<'e>(entry: &'e CStr, name: &CStr) -> Option<&'e [u8]> {
    entry.to_bytes().strip_prefix(name.to_bytes())?.strip_prefix(b"=")
}

pub(super) fn wants() -> bool {
    start::is_wanted() && !is_in_call()
}

/// Whether a program with this name and environment is to have the library. The kernel may not yet have read
/// either, so both are checked first.
///
/// # Safety
///
/// The environment is null or a list that ends with null, as far as it can be read.
unsafe fn wants_with(name: *const c_char, environment: Strings) -> bool {
    if !wants() || !is_readable(name, 1) {
        return false;
    }
    let mut next = environment;
    while !next.is_null() {
        if !is_readable(next, 1) {
            return false;
        }
        // SAFETY: `next` was just checked to be readable, and the list of the program's call has
        // not ended before it.
        let entry = unsafe { next.read() };
        if entry.is_null() {
            break;
        }
        if !is_readable(entry, 1) {
            return false;
        }
        // SAFETY: `next` points to an entry that is not null, so the list, which lasts for the
        // program's call, has one more.
        next = unsafe { next.add(1) };
    }
    true
}

/// Begins another program. The other threads end then, wherever they are.
fn begin(environment: Environment, begin: impl FnOnce(Strings) -> c_int) -> c_int {
    let list = environment.as_ptr();
    // Its strings stay where they are.
    let own = match is_borrower() {
        true => {
            leave_behind(environment);
            None
        }
        false => Some(environment),
    };
    node::leave();
    let failed = begin(list);
    node::stay();
    drop(own);
    failed
}

/// `execve(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execve(
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    if !unsafe { wants_with(path, environment) } {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::execve(path, arguments, environment) };
    }
    // SAFETY: INTERCEPT contract: the path and the environment are valid until this call returns.
    let environment = unsafe { prepare(path, &[], environment) };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `environment`
    // is a list of C strings that lives until the call returns.
    begin(environment, |environment| unsafe {
        next::execve(path, arguments, environment)
    })
}

/// Prepares for another program that is about to have connections of this one's. `given` is what it
/// gets besides what survives `exec`.
///
/// # Safety
///
/// `program` is null or a C string; `environment` is null or a list of C strings that ends
/// with null.
unsafe fn hand_over(program: *const c_char, given: &[c_int], environment: Strings) {
    let _inside = Inside::enter();
    if !program.is_null() {
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let (program, loads) = unsafe { (CStr::from_ptr(program), is_to_have_library(environment)) };
        let program = OsStr::from_bytes(program.to_bytes());
        let reason = match loads {
            true => relay::obstacle(program),
            false => Some(Reason::NoPreload),
        };
        if let Some(reason) = reason {
            node::tell(&program.to_string_lossy(), reason);
        }
        relay::before_exec(given, reason.is_none());
    }
    rights::give_all(given);
}

/// Hands over connections to a program that gets this process's environment.
///
/// # Safety
///
/// `program` is a C string.
pub(super) unsafe fn hand_over_all(program: *const c_char) {
    // SAFETY: `program` is a C string, as the caller guarantees; `environ` is libc's list, valid
    // for this call.
    unsafe { hand_over(program, &[], environ) };
}

/// Hands over connections to a program, and completes the environment for it.
///
/// # Safety
///
/// `program` is null or a C string; `environment` is null or a list of C strings that ends
/// with null.
pub(super) unsafe fn prepare(program: *const c_char, given: &[c_int], environment: Strings) -> Environment {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { hand_over(program, given, environment) };
    let _inside = Inside::enter();
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    unsafe { Environment::complete(environment) }
}

unsafe extern "C" {
    static environ: Strings;
}

/// `execv(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execv(path: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, and libc's `environ`, passed on for this
    // call.
    unsafe { execve(path, arguments, environ) }
}

/// `execvp(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvp(file: *const c_char, arguments: Strings) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, and libc's `environ`, passed on for this
    // call.
    unsafe { execvpe(file, arguments, environ) }
}

/// `execvpe(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execvpe(
    file: *const c_char,
    arguments: Strings,
    environment: Strings,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    if !unsafe { wants_with(file, environment) } {
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::execvpe(file, arguments, environment) };
    }
    // SAFETY: INTERCEPT contract: the name and the environment are valid until this call returns.
    let environment = unsafe { prepare(file, &[], environment) };
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `environment`
    // is a list of C strings that lives until the call returns.
    begin(environment, |environment| unsafe {
        next::execvpe(file, arguments, environment)
    })
}

/// `fexecve(3)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn fexecve(fd: c_int, arguments: Strings, environment: Strings) -> c_int {
    let path = CString::new(format!("/proc/self/fd/{fd}")).unwrap_or_default();
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    if !unsafe { wants_with(path.as_ptr(), environment) } {
        drop(path);
        // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
        return unsafe { next::fexecve(fd, arguments, environment) };
    }
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    let environment = unsafe { prepare(path.as_ptr(), &[], environment) };
    drop(path);
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. `environment`
    // is a list of C strings that lives until the call returns.
    begin(environment, |environment| unsafe {
        next::fexecve(fd, arguments, environment)
    })
}

/// `execveat(2)`.
///
/// # Safety
///
/// The INTERCEPT contract of [`entry`](crate::entry).
#[cfg_attr(not(test), unsafe(no_mangle))]
pub(crate) unsafe extern "C" fn execveat(
    directory: c_int,
    path: *const c_char,
    arguments: Strings,
    environment: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    let execute = |environment: Strings| unsafe {
        let (directory, flags) = (directory.into(), flags.into());
        let (path, arguments, environment) = (path as _, arguments as _, environment as _);
        next::syscall(
            libc::SYS_execveat,
            directory,
            path,
            arguments,
            environment,
            flags,
            0,
        ) as c_int
    };
    // SAFETY: INTERCEPT contract: the program passes a name, valid for this call.
    let file = unsafe { file_at(directory, path) };
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    let Some(file) = file.filter(|file| unsafe { wants_with(file.as_ptr(), environment) }) else {
        return execute(environment);
    };
    // SAFETY: INTERCEPT contract: the program passes an environment, valid for this call.
    let environment = unsafe { prepare(file.as_ptr(), &[], environment) };
    drop(file);
    begin(environment, execute)
}

/// The path of a file that is named from a directory on, or that is the descriptor's if there is no name.
///
/// # Safety
///
/// `path` is null or a C string.
unsafe fn file_at(directory: c_int, path: *const c_char) -> Option<CString> {
    if !is_readable(path, 1) {
        return None;
    }
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    let path = unsafe { CStr::from_ptr(path) };
    if directory == libc::AT_FDCWD || path.to_bytes().first() == Some(&b'/') {
        return Some(path.to_owned());
    }
    let mut file = format!("/proc/self/fd/{directory}").into_bytes();
    if !path.is_empty() {
        file.push(b'/');
        file.extend_from_slice(path.to_bytes());
    }
    CString::new(file).ok()
}

/// Calls `begin` with the arguments of a program that are passed one by one.
///
/// # Safety
///
/// The arguments are C strings, of which the last one is null.
unsafe fn collect(arguments: &mut Arguments, begin: impl FnOnce(Strings, &mut Arguments) -> c_int) -> c_int {
    let mut list = Vec::new();
    loop {
        // SAFETY: the list of arguments ends with null, which was not taken yet.
        let next = unsafe { arguments.next() };
        list.push(next);
        if next.is_null() {
            break;
        }
    }
    let strings = list.as_ptr();
    if is_borrower() {
        leave_behind(list);
        return begin(strings, arguments);
    }
    let failed = begin(strings, arguments);
    drop(list);
    failed
}

variadic! {
    /// `execl(3)`.
    fn execl("1", "rsi") => execute;
}

variadic! {
    /// `execlp(3)`.
    fn execlp("1", "rsi") => look_up_and_execute;
}

variadic! {
    /// `execle(3)`.
    fn execle("1", "rsi") => execute_with;
}

unsafe extern "C" fn execute(path: *const c_char, arguments: *mut Arguments) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { collect(&mut *arguments, |list, _| execv(path, list)) }
}

unsafe extern "C" fn look_up_and_execute(file: *const c_char, arguments: *mut Arguments) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call.
    unsafe { collect(&mut *arguments, |list, _| execvp(file, list)) }
}

unsafe extern "C" fn execute_with(path: *const c_char, arguments: *mut Arguments) -> c_int {
    // SAFETY: INTERCEPT contract: the program's arguments, passed on for this call. The environment
    // comes last.
    unsafe {
        collect(&mut *arguments, |list, rest| {
            execve(path, list, rest.next().cast())
        })
    }
}
