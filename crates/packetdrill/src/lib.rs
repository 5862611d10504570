//! Toehold behind packetdrill's interface for user-space stacks.
//!
//! packetdrill plays scripts of system calls and packets against a TCP stack.
//! With `--so_filename=libtoehold_packetdrill.so` it loads this library instead
//! of talking to the kernel, and with `--so_flags` passes it the stack's
//! addresses and settings (see [`flags`]):
//!
//! ```text
//! packetdrill --so_filename=target/release/libtoehold_packetdrill.so \
//!     --so_flags=local=192.168.0.1/16,mtu=1500 script.pkt
//! ```
//!
//! # Time
//!
//! packetdrill reads the time and sleeps through the interface too, so that time is this library's
//! own. It is a virtual clock that stands still while anything runs and jumps to the next deadline
//! when everything waits. A script therefore gives the same result on a busy machine as on an idle
//! one, and one that waits a minute takes milliseconds. See [`node`](self) for how threads that
//! block in a call are kept in step.
//!
//! # What it never does
//!
//! It holds no protocol logic: what a script checks is what `toehold-stack` did.
//! Packets are whole IP packets, without an Ethernet header. There is only TCP.

mod abi;
mod calls;
mod descriptors;
mod epoll;
pub mod fast_open;
pub mod flags;
mod node;
mod options;
mod sockets;
mod splice;
mod zerocopy;

pub use abi::Interface;

use core::ffi::{CStr, c_char};

/// Fills packetdrill's table of functions. It is called once, by the thread that
/// will play the script.
///
/// Flags that cannot be understood end the program with a message: the
/// interface has no way to refuse.
///
/// # Safety
///
/// `flags` is null or a C string; `interface` points to a writable table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn packetdrill_interface_init(flags: *const c_char, interface: *mut Interface) {
    let text = if flags.is_null() {
        String::new()
    } else {
        // SAFETY: `flags` is not null, so it is a C string, which the caller keeps until this call
        // returns.
        unsafe { CStr::from_ptr(flags) }.to_string_lossy().into_owned()
    };
    let made = flags::parse(&text)
        .map_err(|error| error.to_string())
        .and_then(|flags| node::Node::new(&flags.config, flags.fast_open));
    match made {
        // SAFETY: `interface` points to a table that the caller lets this call write.
        Ok(node) => unsafe { interface.write(calls::table(Box::new(node))) },
        Err(error) => {
            eprintln!("toehold: {error}");
            std::process::exit(2);
        }
    }
}
