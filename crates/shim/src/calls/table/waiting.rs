//! Calls that wait until a descriptor is ready.

use super::{Call, WALK, call};
use crate::calls::Way::{Carried, Kernels};

pub(super) const WAITS: &[Call] = &[
    call(7, "poll", "poll __poll __poll_chk", Carried, "", WALK),
    call(271, "ppoll", "ppoll __ppoll_chk", Carried, "", WALK),
    call(23, "select", "select __select", Carried, "", WALK),
    call(270, "pselect6", "pselect", Carried, "", WALK),
    call(213, "epoll_create", "epoll_create", Carried, "", WALK),
    call(291, "epoll_create1", "epoll_create1", Carried, "", WALK),
    call(233, "epoll_ctl", "epoll_ctl", Carried, "", WALK),
    call(232, "epoll_wait", "epoll_wait", Carried, "", WALK),
    call(281, "epoll_pwait", "epoll_pwait", Carried, "", WALK),
    call(441, "epoll_pwait2", "epoll_pwait2", Carried, "", WALK),
    call(
        214,
        "epoll_ctl_old",
        "",
        Kernels,
        "The kernel has no such calls any more: ENOSYS.",
        WALK,
    ),
    call(
        215,
        "epoll_wait_old",
        "",
        Kernels,
        "The kernel has no such calls any more: ENOSYS.",
        WALK,
    ),
];
