//! The two files, as the kernel asks for them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, OpenAccMode, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};

use super::replies::DiskReply;
use super::{CONTROL_FILE, DISK_FILE, SharedDisk, lock};
use crate::array::DiskSpan;
use crate::head::Transfer;

const DISK: INodeNo = INodeNo(2);
const CONTROL: INodeNo = INodeNo(3);

/// How long the kernel may believe names and attributes: they never change.
const BELIEF: Duration = Duration::from_secs(3600);

/// Requests that the kernel may have under way. A loop device has 128.
const MOST_UNDER_WAY: u16 = 256;

/// Open files that have a text of the state.
const MOST_TEXTS: usize = 64;

/// Bytes of the largest request.
const MOST_REQUEST: u32 = 1 << 20;

/// The file system of one disk.
#[derive(Debug)]
pub(super) struct DiskFiles {
    shared: Arc<SharedDisk>,
    /// Texts of the state by file handle: a reader sees one state, however it reads.
    texts: Mutex<(u64, HashMap<u64, Vec<u8>>)>,
}

impl DiskFiles {
    pub(super) fn new(shared: Arc<SharedDisk>) -> Self {
        Self {
            shared,
            texts: Mutex::default(),
        }
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            DISK => (FileType::RegularFile, 0o600, lock(&self.shared.image).size()),
            CONTROL => (FileType::RegularFile, 0o600, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    fn answer_attributes(&self, inode: INodeNo, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&BELIEF, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Takes a text of the state for a file that is opened.
    fn open_text(&self) -> Option<u64> {
        let text = serde_json::to_string_pretty(&self.shared.state()).ok()? + "\n";
        let mut texts = lock(&self.texts);
        if texts.1.len() >= MOST_TEXTS {
            return None;
        }
        texts.0 += 1;
        let handle = texts.0;
        texts.1.insert(handle, text.into_bytes());
        Some(handle)
    }

    /// Replies when a request is due.
    fn reply(&self, due_ns: Option<u64>, reply: DiskReply) {
        match due_ns {
            Some(due_ns) => self.shared.replies.add(due_ns, reply),
            None => drop(reply.send()),
        }
    }
}

impl Filesystem for DiskFiles {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without it a loop device's worker waits for each request.
        let wanted = InitFlags::FUSE_ASYNC_DIO;
        config.add_capabilities(wanted).map_err(|_| {
            io::Error::new(
                io::ErrorKind::Unsupported,
                "this kernel's FUSE has no asynchronous direct I/O",
            )
        })?;
        // Both answer with the nearest value that is possible, which then holds.
        let _ = config.set_max_background(MOST_UNDER_WAY);
        let _ = config.set_max_write(MOST_REQUEST);
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let inode = match name.to_str() {
            Some(DISK_FILE) if parent == INodeNo::ROOT => DISK,
            Some(CONTROL_FILE) if parent == INodeNo::ROOT => CONTROL,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(inode) {
            Some(attributes) => reply.entry(&BELIEF, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        self.answer_attributes(inode, reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // A shell empties `control` before it writes; the disk keeps its size.
        if inode == DISK && size.is_some_and(|size| size != lock(&self.shared.image).size()) {
            return reply.error(Errno::EPERM);
        }
        self.answer_attributes(inode, reply);
    }

    fn open(&self, _request: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        match inode {
            DISK => reply.opened(FileHandle(0), direct | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES),
            CONTROL if flags.acc_mode() == OpenAccMode::O_WRONLY => reply.opened(FileHandle(0), direct),
            CONTROL => match self.open_text() {
                Some(handle) => reply.opened(FileHandle(handle), direct),
                None => reply.error(Errno::ENFILE),
            },
            _ => reply.error(Errno::EISDIR),
        }
    }

    fn read(
        &self,
        _request: &Request,
        inode: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if inode == CONTROL {
            let texts = lock(&self.texts);
            let text = texts.1.get(&handle.0).map_or(&[][..], Vec::as_slice);
            let begin = usize::try_from(offset).unwrap_or(usize::MAX).min(text.len());
            let end = begin.saturating_add(size as usize).min(text.len());
            return reply.data(&text[begin..end]);
        }
        let image = lock(&self.shared.image);
        let bytes = image.within(offset, size.into());
        let mut buffer = self.shared.replies.buffer(bytes as usize);
        image.read(offset, &mut buffer);
        drop(image);
        let due = lock(&self.shared.timing).serve(DiskSpan { offset, bytes }, Transfer::Read);
        self.reply(due, DiskReply::Data(reply, buffer));
    }

    fn write(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let length = data.len() as u32;
        if inode == CONTROL {
            return match self.shared.change(data) {
                Ok(()) => reply.written(length),
                Err(_) => reply.error(Errno::EINVAL),
            };
        }
        let mut image = lock(&self.shared.image);
        let bytes = image.within(offset, length.into());
        if bytes < u64::from(length) {
            return reply.error(Errno::ENOSPC);
        }
        image.write(offset, data);
        drop(image);
        let due = lock(&self.shared.timing).serve(DiskSpan { offset, bytes }, Transfer::Write);
        self.reply(due, DiskReply::Written(reply, length));
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data_only: bool,
        reply: ReplyEmpty,
    ) {
        let due = lock(&self.shared.timing).flush();
        self.reply(due, DiskReply::Flushed(reply));
    }

    fn release(
        &self,
        _request: &Request,
        _inode: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.texts).1.remove(&handle.0);
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, DISK_FILE),
            (CONTROL, FileType::RegularFile, CONTROL_FILE),
        ];
        let begin = usize::try_from(offset).unwrap_or(usize::MAX);
        for (index, (inode, kind, name)) in (1..).zip(entries).skip(begin) {
            if reply.add(inode, index, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
