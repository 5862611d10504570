//! Nodes that lie, stop, or talk nonsense. Each of these tests has an honest
//! pair beside the liar, to which nothing must happen.

mod bells;
mod direct;
mod introductions;
mod liar;
mod records;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};

use super::*;
use crate::mq::control::{self, Packet};
use crate::mq::message::{Introduction, MESSAGE_LEN, Message};
use crate::mq::name::MemberName;
use crate::mq::record::{HEADER_LEN, MAX_FRAME};
use crate::mq::{BadRecord, Loss, Refusal};
use crate::steering::Steering;
use toehold_shm::ring::{Corrupt, VERSION};

pub(super) use self::liar::Liar;
use self::liar::*;
