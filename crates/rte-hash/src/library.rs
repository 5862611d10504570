//! The library, its functions, and the environment that they need.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;
use std::thread;

use libloading::Library;
use thiserror::Error;

/// The library whose interface this is; another number would mean another interface.
const FILE: &str = "librte_hash.so.23";

/// What Debian 12 calls the package with it.
const PACKAGE: &str = "librte-hash23";

/// What DPDK is to do with the machine: as good as nothing. It takes usual pages, up to 4 GiB of them
/// and only those that are used, opens no device, leaves nothing but an empty directory where it keeps
/// what runs, and says nothing that is no error.
const ARGUMENTS: [&str; 8] = [
    "toehold",
    "--no-huge",
    "--no-shconf",
    "--no-pci",
    "--no-telemetry",
    "--log-level=4",
    "-m",
    "4096",
];

/// Why there is no `rte_hash` to compare with.
#[derive(Debug, Error)]
pub enum Missing {
    /// It is not installed, or not the one that is known here.
    #[error("{FILE} is not there; Debian's package {PACKAGE} has it ({0})")]
    Library(#[from] libloading::Error),
    /// Its environment does not begin.
    #[error("DPDK's environment does not begin: rte_eal_init({ARGUMENTS:?}) failed")]
    Environment,
}

/// `struct rte_hash`, which only the library knows.
#[repr(C)]
pub(crate) struct Opaque([u8; 0]);

/// `struct rte_hash_parameters`.
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) name: *const c_char,
    pub(crate) entries: u32,
    pub(crate) reserved: u32,
    pub(crate) key_len: u32,
    /// Null for the library's choice, which is a CRC by the processor where there is one.
    pub(crate) hash: *const c_void,
    pub(crate) hash_begins_with: u32,
    pub(crate) socket_id: c_int,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Parameters>() == 48 || size_of::<usize>() != 8);

/// The library with its environment begun: there is one in a process, for ever.
pub struct Rte {
    pub(crate) create: unsafe extern "C" fn(*const Parameters) -> *mut Opaque,
    pub(crate) free: unsafe extern "C" fn(*mut Opaque),
    pub(crate) add: unsafe extern "C" fn(*const Opaque, *const c_void, *mut c_void) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(*const Opaque, *const c_void) -> i32,
    pub(crate) look_up:
        unsafe extern "C" fn(*const Opaque, *mut *const c_void, u32, *mut u64, *mut *mut c_void) -> c_int,
}

impl Rte {
    /// Loads it, or says why not: the same each time.
    pub fn load() -> Result<&'static Self, &'static Missing> {
        static LOADED: OnceLock<Result<Rte, Missing>> = OnceLock::new();
        LOADED.get_or_init(Self::begin).as_ref()
    }

    fn begin() -> Result<Self, Missing> {
        // SAFETY: what runs when this library and those that it needs are loaded registers log types
        // and the like, and depends on nothing of this program's.
        let library = unsafe { Library::new(FILE) }?;
        // SAFETY: these are the functions' types in version 23 of the interface, which the file's name
        // is of.
        let (init, rte) = unsafe {
            let init = *library
                .get::<unsafe extern "C" fn(c_int, *mut *mut c_char) -> c_int>(symbol(c"rte_eal_init"))?;
            let rte = Self {
                create: *library.get(symbol(c"rte_hash_create"))?,
                free: *library.get(symbol(c"rte_hash_free"))?,
                add: *library.get(symbol(c"rte_hash_add_key_data"))?,
                remove: *library.get(symbol(c"rte_hash_del_key"))?,
                look_up: *library.get(symbol(c"rte_hash_lookup_bulk_data"))?,
            };
            (init, rte)
        };
        // Its threads and pointers into it remain.
        std::mem::forget(library);
        let begun = thread::spawn(move || {
            let argument = |text: &str| CString::new(text).expect("no zero").into_raw();
            let mut arguments = ARGUMENTS.map(argument);
            // SAFETY: these are strings that live for ever, since it may keep them. It is called once in
            // this process, and ties the thread that calls it to a processor, which therefore is this one.
            unsafe { init(arguments.len() as c_int, arguments.as_mut_ptr()) }
        });
        match begun.join() {
            Ok(parsed) if parsed >= 0 => Ok(rte),
            _ => Err(Missing::Environment),
        }
    }
}

fn symbol(name: &CStr) -> &[u8] {
    name.to_bytes_with_nul()
}
