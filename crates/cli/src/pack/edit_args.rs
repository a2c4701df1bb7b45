//! `--edit KIND:FILE`: files that add to a tree or change it.

use super::arg_files::{read, usage};
use crate::exit::Failure;
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln_source::Unreadable;
use kiln_source::manifest::{ListError, parse_device_table, parse_fs_config, read_fs_config, read_pseudo};
use kiln_tree::policy::{FileContexts, FsConfig, Labels, Policy, TreeEdits};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options about edits.
#[derive(clap::Args)]
pub struct EditArgs {
    /// Apply definitions to the tree (see `kiln help edits`)
    #[arg(long, value_name = "KIND:FILE", value_parser = OsStringValueParser::new().try_map(EditArg::parse))]
    edit: Vec<EditArg>,

    /// Directory where the image will be mounted, for --edit
    #[arg(long, value_name = "DIR", requires = "edit")]
    mount_point: Option<PathBuf>,
}

/// Value of `--edit`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct EditArg {
    kind: EditKind,
    path: PathBuf,
}

/// Kind of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EditKind {
    DeviceTable,
    FileContexts,
    FsConfig,
    ProductOut,
    Pseudo,
}

const KINDS: [(&str, EditKind); 5] = [
    ("device-table", EditKind::DeviceTable),
    ("file-contexts", EditKind::FileContexts),
    ("fs-config", EditKind::FsConfig),
    ("product-out", EditKind::ProductOut),
    ("pseudo", EditKind::Pseudo),
];

impl EditKind {
    fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}

impl EditArg {
    fn parse(text: OsString) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let (name, file) = match bytes.iter().position(|&byte| byte == b':') {
            Some(at) => (&bytes[..at], &bytes[at + 1..]),
            None => (bytes, &[][..]),
        };
        let Some((name, kind)) = KINDS.into_iter().find(|(known, _)| known.as_bytes() == name) else {
            let known: Vec<_> = KINDS.iter().map(|(name, _)| format!("{name}:FILE")).collect();
            return Err(format!("`{}` is no kind; use one of {}", String::from_utf8_lossy(name), known.join(", ")));
        };
        match file {
            [] => Err(format!("no file; use {name}:FILE")),
            file => Ok(Self { kind, path: OsString::from_vec(file.to_vec()).into() }),
        }
    }
}

impl EditArgs {
    /// Returns `policy` with the edits, which apply in the order of their kinds.
    ///
    /// # Errors
    /// Files that cannot be read, invalid definitions, and kinds that cannot be had together.
    pub fn apply(&self, policy: Policy) -> Result<Policy, Failure> {
        self.check()?;
        Ok(Policy { fs_config: self.fs_config()?, edits: self.definitions()?, labels: self.labels()?, ..policy })
    }

    /// Returns the first option about a whole tree, which single layers are not.
    pub fn of_whole_tree(&self) -> Option<String> {
        let is_whole = |edit: &&EditArg| !matches!(edit.kind, EditKind::FileContexts | EditKind::ProductOut);
        self.edit.iter().find(is_whole).map(|edit| format!("--edit {}", edit.kind.name()))
    }

    fn check(&self) -> Result<(), Failure> {
        use EditKind::{FileContexts, FsConfig, ProductOut};
        let count = |kinds: &[EditKind]| self.edit.iter().filter(|edit| kinds.contains(&edit.kind)).count();
        if count(&[FileContexts]) > 1 {
            return Err(Failure::Usage("--edit file-contexts: only one file is possible".into()));
        }
        if count(&[FsConfig, ProductOut]) > 1 {
            return Err(Failure::Usage("--edit fs-config, --edit product-out: only one of them is possible".into()));
        }
        if self.mount_point.is_some() && count(&[FileContexts, FsConfig, ProductOut]) == 0 {
            let message = "--mount-point: only for --edit file-contexts, fs-config and product-out";
            return Err(Failure::Usage(message.into()));
        }
        Ok(())
    }

    fn of(&self, kind: EditKind) -> impl Iterator<Item = &Path> {
        self.edit.iter().filter(move |edit| edit.kind == kind).map(|edit| edit.path.as_path())
    }

    fn labels(&self) -> Result<Option<Labels>, Failure> {
        let Some(path) = self.of(EditKind::FileContexts).next() else { return Ok(None) };
        let contexts = FileContexts::parse(&read(path)?, &path.to_string_lossy()).map_err(usage)?;
        Ok(Some(Labels { contexts, mount_point: self.mount_point().to_vec() }))
    }

    fn fs_config(&self) -> Result<Option<FsConfig>, Failure> {
        if let Some(dir) = self.of(EditKind::ProductOut).next() {
            return read_fs_config(dir, self.mount_point()).map(Some).map_err(of_list);
        }
        let list =
            |path: &Path| parse_fs_config(&read(path)?, &path.to_string_lossy(), self.mount_point()).map_err(usage);
        self.of(EditKind::FsConfig).next().map(list).transpose()
    }

    fn definitions(&self) -> Result<Vec<TreeEdits>, Failure> {
        let tables = self.of(EditKind::DeviceTable);
        let tables = tables.map(|path| parse_device_table(&read(path)?, path).map_err(of_list));
        tables.chain(self.of(EditKind::Pseudo).map(|path| read_pseudo(path).map_err(of_list))).collect()
    }

    fn mount_point(&self) -> &[u8] {
        self.mount_point.as_ref().map_or(b"", |dir| dir.as_os_str().as_bytes())
    }
}

/// Returns the failure of a file of definitions.
fn of_list(error: ListError) -> Failure {
    match error {
        ListError::Line(error) => usage(error),
        ListError::Unreadable(Unreadable { path, source }) => Failure::File { path, action: "read", source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_files_are_separated_by_the_first_colon() {
        let parsed = EditArg::parse("pseudo:a:b".into()).unwrap();
        assert_eq!(parsed, EditArg { kind: EditKind::Pseudo, path: "a:b".into() });
        let raw = EditArg::parse(OsString::from_vec(b"fs-config:\xff".to_vec())).unwrap();
        assert_eq!(raw.path.as_os_str().as_bytes(), b"\xff");
        assert_eq!(EditArg::parse("pseudo".into()).unwrap_err(), "no file; use pseudo:FILE");
        let unknown = EditArg::parse("acl:a".into()).unwrap_err();
        assert!(unknown.starts_with("`acl` is no kind; use one of device-table:FILE, "), "{unknown}");
    }
}
