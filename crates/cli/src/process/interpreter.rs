//! The program that runs a program: that of a script, or the loader of an executable.
//!
//! The system says "no such file" of a program that is there if its interpreter is missing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Bytes of a script in which its first line must end, as for the kernel.
const LINE_MAX_LEN: u64 = 256;

/// Returns words about the interpreter of `program`, which the system did not find: `None` if the program itself is
/// missing.
pub fn missing(program: &OsStr) -> Option<String> {
    let mut start = Vec::new();
    File::open(find(program)?).ok()?.take(LINE_MAX_LEN).read_to_end(&mut start).ok()?;
    let Some(line) = start.strip_prefix(b"#!") else {
        return start.starts_with(b"\x7fELF").then(|| "the loader that it names is missing".to_owned());
    };
    let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let name = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty())?;
    Some(format!("its interpreter {} is missing", String::from_utf8_lossy(name)))
}

/// Returns the path of a program, which is looked for as the system does.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = PathBuf::from(program);
    if path.components().count() > 1 || path.is_absolute() {
        return Some(path);
    }
    let dirs = std::env::var_os("PATH")?;
    std::env::split_paths(&dirs).map(|dir| dir.join(&path)).find(|path| path.is_file())
}
