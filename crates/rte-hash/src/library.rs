//! The library, its functions, and its environment.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::OnceLock;
use std::thread;

use libloading::Library;
use thiserror::Error;

/// The library that has this interface. Another number would mean another
/// interface.
const FILE: &str = "librte_hash.so.23";

/// Debian 12's package with the library.
const PACKAGE: &str = "librte-hash23";

/// Arguments that keep DPDK from touching the machine. It takes usual pages, up to
/// 4 GiB of them, and only when used. It opens no device, leaves only an empty
/// runtime directory, and prints only errors.
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

/// Reason for which `rte_hash` is not available.
#[derive(Debug, Error)]
pub enum Missing {
    /// The library is not installed, or has another version.
    #[error("{FILE} is not there; Debian's package {PACKAGE} has it ({0})")]
    Library(#[from] libloading::Error),
    /// DPDK's environment failed to start.
    #[error("DPDK's environment does not start: rte_eal_init({ARGUMENTS:?}) failed")]
    Environment,
}

/// `struct rte_hash`, which is opaque.
#[repr(C)]
pub(crate) struct Opaque([u8; 0]);

/// `struct rte_hash_parameters`.
#[repr(C)]
pub(crate) struct Parameters {
    pub(crate) name: *const c_char,
    pub(crate) entries: u32,
    pub(crate) reserved: u32,
    pub(crate) key_len: u32,
    /// Null for the library's default: a CRC by the processor where there is
    /// one.
    pub(crate) hash: *const c_void,
    pub(crate) hash_begins_with: u32,
    pub(crate) socket_id: c_int,
    pub(crate) flags: u8,
}

const _: () = assert!(size_of::<Parameters>() == 48 || size_of::<usize>() != 8);

/// The library with its environment. A process has one, until it ends.
pub struct Rte {
    pub(crate) create: unsafe extern "C" fn(*const Parameters) -> *mut Opaque,
    pub(crate) free: unsafe extern "C" fn(*mut Opaque),
    pub(crate) add: unsafe extern "C" fn(*const Opaque, *const c_void, *mut c_void) -> c_int,
    pub(crate) remove: unsafe extern "C" fn(*const Opaque, *const c_void) -> i32,
    pub(crate) look_up:
        unsafe extern "C" fn(*const Opaque, *mut *const c_void, u32, *mut u64, *mut *mut c_void) -> c_int,
}

impl Rte {
    /// Loads the library, or returns the reason of the failure. Later calls
    /// return the first result.
    pub fn load() -> Result<&'static Self, &'static Missing> {
        static LOADED: OnceLock<Result<Rte, Missing>> = OnceLock::new();
        LOADED.get_or_init(Self::begin).as_ref()
    }

    fn begin() -> Result<Self, Missing> {
        // SAFETY: the constructors of this library and its dependencies register
        // log types and the like. They depend on no state of this process.
        let library = unsafe { Library::new(FILE) }?;
        // SAFETY: these are the functions' types in version 23 of the interface,
        // which the file name selects. The library stays loaded for the life of the
        // process, so the pointers stay valid.
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
        // Keeps the library loaded: its threads run on, and `rte` points into
        // it.
        std::mem::forget(library);
        let begun = thread::spawn(move || {
            let argument = |text: &str| CString::new(text).expect("no zero").into_raw();
            let mut arguments = ARGUMENTS.map(argument);
            // SAFETY: the arguments are leaked strings, valid for ever, as the
            // library may keep them. This is the only call in the process. It binds
            // the calling thread to a processor, so a thread of its own calls.
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
