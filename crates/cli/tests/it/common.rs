//! Helpers that the tests of the command share.
#![allow(dead_code)] // each test program uses a part of it

pub mod prometheus;
pub mod readers;
pub mod trees;

pub use kiln_tests::skipped as skip;

use kiln_tests::temp::TempDir;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the command, without a terminal and without settings from the environment.
pub fn kiln() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.env("COLUMNS", "100").env_remove("SOURCE_DATE_EPOCH").stdin(Stdio::null());
    command
}

/// Runs the command to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Output {
    kiln().args(args).output().unwrap()
}

/// Runs the command, which must succeed, and returns its output.
pub fn stdout<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Vec<u8> {
    let output = run(args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output.stdout
}

/// Parses a JSON document in which no object has a key twice, which JSON allows and programs read in different ways.
pub fn json(text: &[u8]) -> Value {
    struct Strict(Value);
    struct Visit;

    impl<'de> Deserialize<'de> for Strict {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_any(Visit)
        }
    }

    impl<'de> Visitor<'de> for Visit {
        type Value = Strict;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("JSON")
        }

        fn visit_unit<E>(self) -> Result<Strict, E> {
            Ok(Strict(Value::Null))
        }

        fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
            Ok(Strict(value.into()))
        }

        fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
            Ok(Strict(value.into()))
        }

        fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
            Ok(Strict(value.into()))
        }

        fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
            Ok(Strict(value.into()))
        }

        fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
            Ok(Strict(value.into()))
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Strict, A::Error> {
            let mut list = Vec::new();
            while let Some(Strict(value)) = seq.next_element()? {
                list.push(value);
            }
            Ok(Strict(list.into()))
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Strict, A::Error> {
            let mut object = serde_json::Map::new();
            while let Some((key, Strict(value))) = map.next_entry::<String, Strict>()? {
                if object.insert(key.clone(), value).is_some() {
                    return Err(A::Error::custom(format!("the key {key:?} occurs twice")));
                }
            }
            Ok(Strict(object.into()))
        }
    }

    serde_json::from_slice::<Strict>(text).unwrap().0
}

/// Returns the standard error of a run.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs the command, which must fail with `code` and a message that contains `words`.
pub fn fails<S: AsRef<std::ffi::OsStr>>(args: &[S], code: i32, words: &str) {
    let output = run(args);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    assert!(message.contains(words), "{words:?} is not in {message:?}");
}

/// Returns the path of a golden image, or of a file beside it.
pub fn golden(name: &str) -> String {
    kiln_tests::golden::file(name).into_os_string().into_string().unwrap()
}

/// Returns a number in a document.
pub fn number(told: &Value, key: &str) -> u64 {
    told[key].as_u64().unwrap_or_else(|| panic!("{key} of {told}"))
}

/// Returns the names in a directory, sorted.
pub fn names(dir: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A directory for one test, removed when it ends, with paths as arguments.
pub struct Scratch(TempDir);

impl Scratch {
    pub fn new() -> Self {
        Self(TempDir::new("command").unwrap())
    }

    pub fn path(&self, name: &str) -> String {
        self.0.join(name).into_os_string().into_string().unwrap()
    }

    /// Returns the names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        names(self.0.path())
    }
}

/// A loop device, until the end of the test.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Creates a device for `file`, or `None` if this is not possible.
    pub fn new(file: &str) -> Option<Self> {
        let output = Command::new("losetup").args(["--find", "--show", file]).output().ok()?;
        let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
        (output.status.success() && fs::metadata(&path).is_ok_and(|found| found.file_type().is_block_device()))
            .then_some(Self(path))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

/// Returns text that compresses, the same for the same seed.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let words: Vec<String> = (0..5000).map(|word| format!("{word:x} ")).collect();
    let mut state = seed;
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bytes.extend_from_slice(words[(state >> 40) as usize % words.len()].as_bytes());
    }
    bytes.truncate(len);
    bytes
}
