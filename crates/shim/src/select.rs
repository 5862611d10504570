//! `select`'s sets as `poll`'s array, and back.

use core::ffi::{c_int, c_short, c_ulong};

use libc::{POLLERR, POLLHUP, POLLIN, POLLNVAL, POLLOUT, POLLPRI, fd_set, pollfd};
use toehold_posix::errno::{Errno, Outcome};

const BITS: usize = c_ulong::BITS as usize;

/// The events and answers of each set (see `select(2)`).
const MEANINGS: [(c_short, c_short); 3] = [
    (POLLIN, POLLIN | POLLHUP | POLLERR | POLLNVAL),
    (POLLOUT, POLLOUT | POLLERR | POLLNVAL),
    (POLLPRI, POLLPRI | POLLNVAL),
];

/// # Safety
///
/// `set` is null or has room for `number` descriptors.
unsafe fn has(set: *const fd_set, number: usize) -> bool {
    // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
    !set.is_null() && unsafe { set.cast::<c_ulong>().add(number / BITS).read() } >> (number % BITS) & 1 != 0
}

/// The descriptors that are in any of the sets.
///
/// # Safety
///
/// Each set is null or has room for `number` descriptors.
pub(crate) unsafe fn to_poll(number: c_int, sets: [*mut fd_set; 3]) -> Vec<pollfd> {
    let asked = |fd: c_int| {
        let wanted = sets.iter().zip(MEANINGS);
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let wanted = wanted.filter(|(set, _)| unsafe { has(**set, fd as usize) });
        let events = wanted.fold(0, |events, (_, (ask, _))| events | ask);
        (events != 0).then_some(pollfd {
            fd,
            events,
            revents: 0,
        })
    };
    (0..number).filter_map(asked).collect()
}

/// Leaves in the sets what is ready. Gives how many bits that is. What is not open is wrong when the
/// call begins, and ready if it was closed while it waited, as in the kernel.
///
/// # Safety
///
/// Each set is null or has room for `number` descriptors.
pub(crate) unsafe fn from_poll(
    number: c_int,
    fds: &[pollfd],
    sets: [*mut fd_set; 3],
    later: bool,
) -> Outcome<c_int> {
    if !later && fds.iter().any(|fd| fd.revents & POLLNVAL != 0) {
        return Err(Errno::BADF);
    }
    let mut count = 0;
    for (set, (ask, answers)) in sets.into_iter().zip(MEANINGS).filter(|(set, _)| !set.is_null()) {
        let words = (number as usize).div_ceil(BITS);
        // SAFETY: the caller fulfils this function's `# Safety` section for the whole call.
        let words = unsafe { core::slice::from_raw_parts_mut(set.cast::<c_ulong>(), words) };
        words.fill(0);
        for fd in fds
            .iter()
            .filter(|fd| fd.events & ask != 0 && fd.revents & answers != 0)
        {
            words[fd.fd as usize / BITS] |= 1 << (fd.fd as usize % BITS);
            count += 1;
        }
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(numbers: &[usize]) -> [c_ulong; 16] {
        let mut words = [0; 16];
        numbers
            .iter()
            .for_each(|number| words[number / BITS] |= 1 << (number % BITS));
        words
    }

    #[test]
    fn sets_survive_the_way_there_and_back() {
        let (mut read, mut write) = (set(&[3, 64, 200]), set(&[3, 5]));
        let sets = [
            read.as_mut_ptr().cast(),
            write.as_mut_ptr().cast(),
            core::ptr::null_mut(),
        ];
        // SAFETY: `sets` are null or point to local sets for 1024 descriptors, which live until the
        // test ends.
        let mut fds = unsafe { to_poll(201, sets) };
        assert_eq!(fds.iter().map(|fd| fd.fd).collect::<Vec<_>>(), [3, 5, 64, 200]);
        assert_eq!(fds[0].events, POLLIN | POLLOUT);
        fds[0].revents = POLLIN;
        fds[1].revents = POLLERR;
        fds[3].revents = POLLHUP;
        // SAFETY: `sets` are null or point to local sets for 1024 descriptors, which live until the
        // test ends.
        assert_eq!(unsafe { from_poll(201, &fds, sets, false) }, Ok(3));
        assert_eq!((read, write), (set(&[3, 200]), set(&[5])));
        fds[2].revents = POLLNVAL;
        // SAFETY: `sets` are null or point to local sets for 1024 descriptors, which live until the
        // test ends.
        assert_eq!(unsafe { from_poll(201, &fds, sets, false) }, Err(Errno::BADF));
        // SAFETY: `sets` are null or point to local sets for 1024 descriptors, which live until the
        // test ends.
        assert_eq!(unsafe { from_poll(201, &fds, sets, true) }, Ok(4));
        assert_eq!((read, write), (set(&[3, 64, 200]), set(&[5])));
    }
}
