//! The program that a command means, and the reasons why the library cannot reach it.
//!
//! The dynamic linker loads the library. So a program without one, or one whose dynamic linker does
//! not do so, stays with the kernel. So does a program that makes its system calls itself. This is
//! told from the file alone, as the kernel and the C library read it; nothing is executed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgid, getuid};

use crate::why::Reason;

/// The folders of programs if the environment does not say.
const DEFAULT_PATH: &str = "/bin:/usr/bin";

/// How often a script's interpreter may be a script (the kernel's limit).
const MAX_SCRIPTS: usize = 5;

/// Bytes of a script's first line that the kernel reads.
const MAX_LINE: usize = 256;

/// Program headers that are looked at.
const MAX_HEADERS: u64 = 256;

/// Bytes of a program header.
const HEADER: u64 = 56;

/// The reason why a command cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// No program has that name.
    #[error("{}: there is no such program", .0.display())]
    Missing(OsString),
    /// A file has the name, but is no program.
    #[error("{}: it cannot be executed: {}", .0.display(), .1)]
    NotExecutable(OsString, Errno),
}

impl ProgramError {
    /// The exit status that a shell would have.
    pub fn exit_status(&self) -> u8 {
        match self {
            ProgramError::Missing(_) => 127,
            ProgramError::NotExecutable(..) => 126,
        }
    }
}

/// The file that a command means, as `execvp` finds it.
///
/// # Errors
///
/// If there is none, or none that this user may execute.
pub fn find(command: &OsStr) -> Result<PathBuf, ProgramError> {
    if command.as_bytes().contains(&b'/') {
        let path = PathBuf::from(command);
        return match executable(&path) {
            Ok(()) => Ok(path),
            Err(errno) => Err(error(command, errno)),
        };
    }
    if command.is_empty() {
        return Err(error(command, Errno::NOENT));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    let mut refused = Errno::NOENT;
    for directory in std::env::split_paths(&path) {
        let path = match directory.as_os_str().is_empty() {
            true => Path::new(".").join(command),
            false => directory.join(command),
        };
        match executable(&path) {
            Ok(()) => return Ok(path),
            Err(errno @ Errno::ACCESS) => refused = errno,
            Err(_) => {}
        }
    }
    Err(error(command, refused))
}

fn error(command: &OsStr, errno: Errno) -> ProgramError {
    match errno {
        Errno::NOENT | Errno::NOTDIR => ProgramError::Missing(command.to_owned()),
        errno => ProgramError::NotExecutable(command.to_owned(), errno),
    }
}

fn executable(path: &Path) -> Result<(), Errno> {
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)?;
    let stat = rustix::fs::stat(path)?;
    let file = rustix::fs::FileType::from_raw_mode(stat.st_mode);
    if file.is_file() {
        Ok(())
    } else {
        Err(Errno::ACCESS)
    }
}

/// The reason why a program will not use the node, as its file tells, and that file: the program's,
/// or that of its interpreter. `None` where no obstacle is known.
pub fn obstacle(program: &Path) -> Option<(PathBuf, Reason)> {
    let mut path = program.to_owned();
    for _ in 0..MAX_SCRIPTS {
        let file = File::open(&path).ok()?;
        let mut beginning = [0; MAX_LINE];
        let len = file.read_at(&mut beginning, 0).ok()?;
        let beginning = &beginning[..len];
        if let Some(line) = beginning.strip_prefix(b"#!") {
            path = interpreter(line)?;
            continue;
        }
        let found = is_privileged(&path, &file)
            .then_some(Reason::SetId)
            .or_else(|| of_elf(&file, beginning));
        return found.map(|obstacle| (path, obstacle));
    }
    None
}

/// The interpreter that a script's first line names; where that is `env`, the program that `env`
/// runs.
fn interpreter(line: &[u8]) -> Option<PathBuf> {
    let line = line.split(|&byte| byte == b'\n').next()?;
    let mut words = line
        .split(|byte| b" \t".contains(byte))
        .filter(|word| !word.is_empty())
        .map(OsStr::from_bytes);
    let first = PathBuf::from(words.next()?);
    if first.file_name() != Some(OsStr::new("env")) {
        return Some(first);
    }
    // Options, and variables that it sets.
    let is_word = |word: &&OsStr| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'=');
    find(words.find(is_word)?).ok()
}

/// Whether the kernel gives it rights that this user does not have: then the dynamic linker
/// takes nothing from the environment.
fn is_privileged(path: &Path, file: &File) -> bool {
    let Ok(metadata) = file.metadata() else {
        return false;
    };
    // Of a process that has rights of its own the next program has them, too, unless it begins without.
    if geteuid() != getuid() || getegid() != getgid() {
        return true;
    }
    let set_user = metadata.mode() & 0o4000 != 0 && metadata.uid() != getuid().as_raw();
    // Without the group's right to execute it means something else.
    let set_group = metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != getgid().as_raw();
    let capabilities = || {
        let len = rustix::fs::getxattr(path, "security.capability", &mut [0; 0][..]);
        len.is_ok_and(|len| len > 0) && !getuid().is_root()
    };
    set_user || set_group || capabilities()
}

fn of_elf(file: &File, beginning: &[u8]) -> Option<Reason> {
    // What is neither is for the shell, or refused by the kernel.
    let header = beginning.strip_prefix(b"\x7fELF")?;
    if header.first() == Some(&1) {
        return Some(Reason::ThirtyTwoBit);
    }
    let machine = number::<2>(beginning, 18)?;
    let own = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    if machine != own {
        return Some(Reason::NoPreload);
    }
    let (offset, size, count) = (
        number::<8>(beginning, 32)?,
        number::<2>(beginning, 54)?,
        number::<2>(beginning, 56)?,
    );
    // The kernel takes no program with headers of another size.
    if size != HEADER {
        return None;
    }
    let len = count.min(MAX_HEADERS) * HEADER;
    let headers = read(file, offset, len).filter(|headers| headers.len() as u64 == len)?;
    let (mut linker, mut is_go) = (None, false);
    for header in headers.chunks(HEADER as usize) {
        match number::<4>(header, 0)? {
            PT_INTERP => linker = Some(number::<8>(header, 8)?),
            PT_NOTE => is_go |= has_go_note(file, number::<8>(header, 8)?, number::<8>(header, 32)?),
            _ => {}
        }
    }
    let Some(linker) = linker else {
        return Some(Reason::Static);
    };
    if is_musl(file, linker) {
        return Some(Reason::MuslNoBuild);
    }
    (is_go || has_go_section(file, beginning)).then_some(Reason::Go)
}

/// Kinds of program headers: the dynamic linker's path, notes.
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;

/// Bytes of a program's notes, or of the names of its sections, that are read.
const MAX_NAMES: u64 = 1 << 16;

/// Section headers that are looked at.
const MAX_SECTIONS: u64 = 1 << 10;

/// Sections that Go's linker makes.
const GO_SECTIONS: [&[u8]; 2] = [b".go.buildinfo", b".note.go.buildid"];

/// Whether there is a note whose owner is Go.
fn has_go_note(file: &File, offset: u64, len: u64) -> bool {
    let notes = read(file, offset, len.min(MAX_NAMES)).unwrap_or_default();
    let mut rest = &notes[..];
    let padded = |len: u64| usize::try_from(len.next_multiple_of(4)).unwrap_or(usize::MAX);
    while let (Some(owner), Some(content)) = (number::<4>(rest, 0), number::<4>(rest, 4)) {
        if rest.get(12..12 + 4) == Some(b"Go\0\0") && owner == 4 {
            return true;
        }
        let next = 12_usize
            .saturating_add(padded(owner))
            .saturating_add(padded(content));
        rest = rest.get(next..).unwrap_or_default();
    }
    false
}

/// Whether there is a section that Go's linker makes.
fn has_go_section(file: &File, beginning: &[u8]) -> bool {
    let names = section_names(file, beginning).unwrap_or_default();
    names
        .split(|&byte| byte == 0)
        .any(|name| GO_SECTIONS.contains(&name))
}

/// The names of all sections, with a null byte behind each.
fn section_names(file: &File, beginning: &[u8]) -> Option<Vec<u8>> {
    let (offset, size) = (number::<8>(beginning, 40)?, number::<2>(beginning, 58)?);
    let index = number::<2>(beginning, 62)?;
    if index >= MAX_SECTIONS {
        return None;
    }
    let header = read(file, offset.checked_add(index * size)?, 64)?;
    let (offset, len) = (number::<8>(&header, 24)?, number::<8>(&header, 32)?);
    read(file, offset, len.min(MAX_NAMES))
}

/// Reads a number of bytes of a file, or as many as there are.
fn read(file: &File, offset: u64, len: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let mut filled = 0;
    while filled < bytes.len() {
        match file.read_at(&mut bytes[filled..], offset.checked_add(filled as u64)?) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(filled);
    Some(bytes)
}

fn is_musl(file: &File, offset: u64) -> bool {
    let mut name = [0; MAX_LINE];
    let len = file.read_at(&mut name, offset).unwrap_or(0);
    let name = name[..len].split(|&byte| byte == 0).next().unwrap_or_default();
    name.windows(7).any(|part| part == b"ld-musl")
}

/// A little-endian number of `N` bytes.
fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(bytes.get(at..at + N)?);
    Some(u64::from_le_bytes(wide))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A file with a program's beginning: class, processor, and the dynamic linker, if any.
    fn elf(class: u8, machine: u16, linker: Option<&str>) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..5].copy_from_slice(&[0x7f, b'E', b'L', b'F', class]);
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 2;
        let mut headers = vec![0; 112];
        headers[0] = 1;
        headers[56] = if linker.is_some() { 3 } else { 1 };
        headers[64] = 176;
        bytes.extend(headers);
        bytes.extend(linker.unwrap_or_default().bytes().chain([0]));
        bytes
    }

    fn own() -> u16 {
        if cfg!(target_arch = "x86_64") { 62 } else { 183 }
    }

    fn write(directory: &tempfile::TempDir, name: &str, contents: &[u8], mode: u32) -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn programs_without_the_dynamic_linker_are_told() {
        let directory = tempfile::tempdir().unwrap();
        let gnu = Some("/lib64/ld-linux-x86-64.so.2");
        for (contents, expected) in [
            (elf(2, own(), gnu), None),
            (elf(2, own(), None), Some(Reason::Static)),
            (
                elf(2, own(), Some("/lib/ld-musl-x86_64.so.1")),
                Some(Reason::MuslNoBuild),
            ),
            (elf(1, 3, None), Some(Reason::ThirtyTwoBit)),
            (elf(2, 8, gnu), Some(Reason::NoPreload)),
            (b"\x7fELF\x02".to_vec(), None),
            (b"echo".to_vec(), None),
            (Vec::new(), None),
        ] {
            let path = write(&directory, "program", &contents, 0o755);
            let found = obstacle(&path).map(|(_, obstacle)| obstacle);
            assert_eq!(found, expected, "{contents:?}");
        }
        assert_eq!(obstacle(Path::new("/bin/sh")), None);
    }

    /// A dynamically linked program with Go's note, or with a section that its linker makes.
    fn go_program(by_note: bool) -> Vec<u8> {
        let mut bytes = elf(2, own(), Some("/lib64/ld-linux-x86-64.so.2"));
        match by_note {
            true => {
                let at = bytes.len() as u64;
                bytes.extend([4, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0]);
                bytes.extend(b"LLVMabc\0"[4..].iter().chain(b"xyz\0"));
                bytes.extend([4, 0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0]);
                bytes.extend(b"Go\0\0id\0\0");
                let len = bytes.len() as u64 - at;
                bytes[64] = 4;
                bytes[72..80].copy_from_slice(&at.to_le_bytes());
                bytes[96..104].copy_from_slice(&len.to_le_bytes());
            }
            false => {
                let names = bytes.len() as u64;
                bytes.extend(b"\0.text\0.go.buildinfo\0");
                let sections = bytes.len() as u64;
                let mut header = [0; 64];
                header[24..32].copy_from_slice(&names.to_le_bytes());
                header[32..40].copy_from_slice(&21_u64.to_le_bytes());
                bytes.extend(header);
                bytes[40..48].copy_from_slice(&sections.to_le_bytes());
                bytes[58] = 64;
                bytes[60] = 1;
            }
        }
        bytes
    }

    #[test]
    fn dynamic_go_program_is_told() {
        let directory = tempfile::tempdir().unwrap();
        for by_note in [true, false] {
            let path = write(&directory, "gox", &go_program(by_note), 0o755);
            assert_eq!(obstacle(&path), Some((path.clone(), Reason::Go)), "{by_note}");
        }
        // Lengths and offsets that lie.
        let mut hostile = go_program(true);
        hostile[96..104].fill(0xff);
        let at = hostile.len() - 40;
        hostile[at..at + 8].fill(0xff);
        let path = write(&directory, "hostile", &hostile, 0o755);
        assert_eq!(obstacle(&path), None);
        let mut hostile = go_program(false);
        hostile[40..48].fill(0xff);
        let path = write(&directory, "hostile", &hostile, 0o755);
        assert_eq!(obstacle(&path), None);
    }

    #[test]
    fn program_headers_of_another_size_or_cut_off_tell_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let whole = elf(2, own(), None);
        let path = write(&directory, "whole", &whole, 0o755);
        assert_eq!(obstacle(&path), Some((path.clone(), Reason::Static)));
        let mut other = whole.clone();
        other[54] = 57;
        let mut many = whole.clone();
        many[56..58].copy_from_slice(&u16::MAX.to_le_bytes());
        for bytes in [&other[..], &many, &whole[..64 + 56]] {
            let path = write(&directory, "damaged", bytes, 0o755);
            assert_eq!(obstacle(&path), None);
        }
    }

    #[test]
    fn of_a_script_the_interpreter_counts() {
        let directory = tempfile::tempdir().unwrap();
        let program = write(&directory, "static", &elf(2, own(), None), 0o755);
        let first = format!("#! {} -x\n", program.display());
        let script = write(&directory, "script", first.as_bytes(), 0o755);
        let second = format!("#!{}\n", script.display());
        let nested = write(&directory, "nested", second.as_bytes(), 0o755);
        let env = format!("#!/usr/bin/env -S A=b {} more\n", program.display());
        let by_env = write(&directory, "by-env", env.as_bytes(), 0o755);
        for script in [script, nested, by_env] {
            assert_eq!(obstacle(&script), Some((program.clone(), Reason::Static)));
        }
        let shell = write(&directory, "shell", b"#!/bin/sh\n", 0o755);
        assert_eq!(obstacle(&shell), None);
        let circle = directory.path().join("circle");
        let line = format!("#!{}\n", circle.display());
        write(&directory, "circle", line.as_bytes(), 0o755);
        assert_eq!(obstacle(&circle), None);
    }

    #[test]
    fn a_program_with_rights_of_its_own_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let gnu = Some("/lib64/ld-linux-x86-64.so.2");
        // Of its own user's file, the bit changes nothing.
        let own = write(&directory, "own", &elf(2, own(), gnu), 0o4755);
        assert_eq!(obstacle(&own), None);
        if getuid().is_root() {
            std::os::unix::fs::chown(&own, Some(1), None).unwrap();
            fs::set_permissions(&own, fs::Permissions::from_mode(0o4755)).unwrap();
            assert_eq!(obstacle(&own), Some((own.clone(), Reason::SetId)));
        }
    }

    #[test]
    fn commands_are_found_as_a_shell_finds_them() {
        assert!(find(OsStr::new("sh")).is_ok_and(|path| path.is_absolute()));
        let directory = tempfile::tempdir().unwrap();
        let status = |name: &str| {
            let path = directory.path().join(name);
            find(path.as_os_str()).unwrap_err().exit_status()
        };
        write(&directory, "text", b"text", 0o644);
        assert_eq!(
            [status("text"), status("none"), status("text/none")],
            [126, 127, 127]
        );
        assert_eq!(find(directory.path().as_os_str()).unwrap_err().exit_status(), 126);
        let missing = find(OsStr::new("no-such-program-anywhere")).unwrap_err();
        assert_eq!(missing.exit_status(), 127);
        assert_eq!(find(OsStr::new("")).unwrap_err().exit_status(), 127);
    }
}
