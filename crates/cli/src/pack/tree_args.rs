//! Options of the contents and metadata of an image.

use crate::exit::Failure;
use clap::ArgGroup;
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln_source::Unreadable;
use kiln_source::manifest::{ListError, parse_device_table, parse_fs_config, read_fs_config, read_pseudo};
use kiln_tree::filter::{Filter, PathList, Regexes, Rule, Rules};
use kiln_tree::policy::{
    Chmod, FileContexts, FsConfig, IdBase, IdMap, IdPolicy, IdRange, Labels, NameGlobs, Policy, Times, TreeEdits,
    XattrPolicy, parse_xattr,
};
use kiln_tree::{SyntaxError, Xattr};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(next_help_heading = "What goes in", group = ArgGroup::new("by_path").multiple(true))]
pub struct TreeArgs {
    /// Leave out what GLOB matches, as in .gitignore: a slash ties it to SRC, `**` goes beyond slashes, `!` takes back; of
    /// several the last decides
    #[arg(long, value_name = "GLOB")]
    exclude: Vec<OsString>,

    /// Globs to leave out, one a line; --exclude overrides them
    #[arg(long, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Leave out by files of this name in the tree, as git does by .gitignore; --exclude overrides them
    #[arg(long, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(file_name))]
    ignore_file: Vec<CString>,

    /// Leave out paths, from SRC on, in which REGEX matches anything
    #[arg(long, value_name = "REGEX")]
    exclude_regex: Vec<String>,

    /// Only these paths, from SRC on, one a line or zero-terminated, and their parents; - is standard input
    #[arg(long, value_name = "FILE")]
    from_list: Option<PathBuf>,

    /// Keep mount points, but nothing that is on them
    #[arg(long)]
    one_file_system: bool,

    /// Make hard links files of their own
    #[arg(long)]
    hard_dereference: bool,

    /// Everything belongs to root; as --owner 0:0
    #[arg(long, conflicts_with_all = ["owner", "uid_map", "gid_map"])]
    all_root: bool,

    /// Everything belongs to this user and group
    #[arg(long, value_name = "UID:GID", value_parser = owner, conflicts_with_all = ["uid_map", "gid_map"])]
    owner: Option<(u32, u32)>,

    /// Translate users: of a run of OUTSIDE ids in SRC, the first becomes INSIDE; others are an error
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT")]
    uid_map: Vec<IdRange>,

    /// Translate groups
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT")]
    gid_map: Vec<IdRange>,

    /// Add this to user ids, last of all
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true, allow_negative_numbers = true)]
    uid_offset: i64,

    /// Add this to group ids, last of all
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true, allow_negative_numbers = true)]
    gid_offset: i64,

    /// Change permissions: u+rwX,go-w or D755,F644, where D is directories and F all else
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    chmod: Option<Chmod>,

    /// Times of last modification: keep, clamp:SECS (none is later), or SECS since 1970 for all
    #[arg(long, value_name = "TIME", default_value = "keep", allow_negative_numbers = true)]
    mtime: Times,

    /// Extended attributes of SRC
    #[arg(long, value_enum, default_value_t)]
    xattrs: XattrsArg,

    /// Keep only extended attributes of these names
    #[arg(long, value_name = "GLOB")]
    xattr_include: Vec<OsString>,

    /// Leave out extended attributes of these names
    #[arg(long, value_name = "GLOB")]
    xattr_exclude: Vec<OsString>,

    /// Fail where an extended attribute of SRC is one that EROFS cannot hold, as com.apple.*, or an entry of an ACL has a name without an id.
    /// Without it such are left out, and counted in one line
    #[arg(long)]
    strict_xattrs: bool,

    /// Give everything this extended attribute; a VALUE 0x... is hexadecimal
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(xattr))]
    set_xattr: Vec<Xattr>,

    /// SELinux labels by path, as in file_contexts(5), instead of those of SRC
    #[arg(long, value_name = "FILE", group = "by_path")]
    file_contexts: Option<PathBuf>,

    /// Owners, permissions and capabilities of all files, as Android's builds list them: lines PATH UID GID MODE; over
    /// --owner, --chmod and the like
    #[arg(long, value_name = "FILE", group = "by_path", conflicts_with = "product_out")]
    fs_config: Option<PathBuf>,

    /// The same by rules that an Android build has put into DIR, as system/etc/fs_config_files; what no rule is about stays
    #[arg(long, value_name = "DIR", group = "by_path")]
    product_out: Option<PathBuf>,

    /// Where the image will be mounted: --file-contexts, --fs-config and --product-out have paths from / on
    #[arg(long, value_name = "DIR", requires = "by_path")]
    mount_point: Option<PathBuf>,

    /// Add and change files as pseudo file definitions of mksquashfs say; over all but --file-contexts
    #[arg(long, value_name = "FILE")]
    pseudo: Vec<PathBuf>,

    /// Add and change files as a device table of makedevs says, before --pseudo
    #[arg(long, value_name = "FILE")]
    device_table: Vec<PathBuf>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
enum XattrsArg {
    /// As the other options say
    #[default]
    Keep,
    /// Leave out all
    None,
}

impl TreeArgs {
    /// Returns the filter of the scan.
    ///
    /// # Errors
    /// Files that cannot be read; invalid globs, expressions and paths.
    pub fn filter(&self) -> Result<Filter, Failure> {
        let mut filter = Filter {
            ignore_files: self.ignore_file.clone(),
            one_file_system: self.one_file_system,
            ..Filter::default()
        };
        for path in &self.exclude_from {
            filter.rules.push(Rules::parse(&read(path)?, &path.to_string_lossy()).map_err(usage)?);
        }
        let rules = self.exclude.iter().map(|glob| Rule::new(glob.as_bytes())).collect::<Result<_, _>>();
        filter.rules.push(rules.and_then(Rules::new).map_err(|error| named("--exclude", &error))?);
        filter.regexes = self.regexes().map_err(|error| named("--exclude-regex", &error))?;
        if let Some(path) = &self.from_list {
            filter.only = Some(PathList::parse(&read_or_stdin(path)?, &path.to_string_lossy()).map_err(usage)?);
        }
        Ok(filter)
    }

    fn regexes(&self) -> Result<Regexes, SyntaxError> {
        let mut regexes = Regexes::default();
        self.exclude_regex.iter().try_for_each(|regex| regexes.add(regex))?;
        Ok(regexes)
    }

    /// Returns the policy of owners, times, attributes and edits.
    ///
    /// # Errors
    /// Files that cannot be read; options that contradict each other.
    pub fn policy(&self) -> Result<Policy, Failure> {
        let owner = self.owner.or(self.all_root.then_some((0, 0)));
        let uid = ids(owner.map(|(uid, _)| uid), &self.uid_map).map_err(|error| named("--uid-map", &error))?;
        let gid = ids(owner.map(|(_, gid)| gid), &self.gid_map).map_err(|error| named("--gid-map", &error))?;
        Ok(Policy {
            hard_dereference: self.hard_dereference,
            chmod: self.chmod.clone().unwrap_or_default(),
            uid: IdPolicy { base: uid, offset: self.uid_offset },
            gid: IdPolicy { base: gid, offset: self.gid_offset },
            times: self.mtime,
            xattrs: self.xattr_policy()?,
            fs_config: self.fs_config()?,
            edits: self.edits()?,
            labels: self.labels()?,
            ..Policy::default()
        })
    }

    fn xattr_policy(&self) -> Result<XattrPolicy, Failure> {
        let globs = |option: &str, globs: &[OsString]| {
            NameGlobs::new(globs.iter().map(|glob| glob.as_bytes())).map_err(|error| named(option, &error))
        };
        let exclude = match self.xattrs {
            XattrsArg::Keep => globs("--xattr-exclude", &self.xattr_exclude)?,
            XattrsArg::None => globs("--xattrs", &["*".into()])?,
        };
        let include = (!self.xattr_include.is_empty()).then(|| globs("--xattr-include", &self.xattr_include));
        let (set, strict) = (self.set_xattr.clone(), self.strict_xattrs);
        Ok(XattrPolicy { include: include.transpose()?, exclude, set, strict })
    }

    fn labels(&self) -> Result<Option<Labels>, Failure> {
        let Some(path) = &self.file_contexts else { return Ok(None) };
        let contexts = FileContexts::parse(&read(path)?, &path.to_string_lossy()).map_err(usage)?;
        Ok(Some(Labels { contexts, mount_point: self.mount_point().to_vec() }))
    }

    fn fs_config(&self) -> Result<Option<FsConfig>, Failure> {
        let list =
            |path: &PathBuf| parse_fs_config(&read(path)?, &path.to_string_lossy(), self.mount_point()).map_err(usage);
        match &self.product_out {
            Some(dir) => read_fs_config(dir, self.mount_point()).map(Some).map_err(of_list),
            None => self.fs_config.as_ref().map(list).transpose(),
        }
    }

    fn edits(&self) -> Result<Vec<TreeEdits>, Failure> {
        let tables = self.device_table.iter();
        let tables = tables.map(|path| parse_device_table(&read(path)?, path).map_err(of_list));
        tables.chain(self.pseudo.iter().map(|path| read_pseudo(path).map_err(of_list))).collect()
    }

    fn mount_point(&self) -> &[u8] {
        self.mount_point.as_ref().map_or(b"", |dir| dir.as_os_str().as_bytes())
    }
}

fn ids(all: Option<u32>, map: &[IdRange]) -> Result<IdBase, SyntaxError> {
    Ok(match (all, map) {
        (Some(id), _) => IdBase::All(id),
        (None, []) => IdBase::Keep,
        (None, map) => IdBase::Map(IdMap::inward(map)?),
    })
}

/// An error of a file of definitions.
fn of_list(error: ListError) -> Failure {
    match error {
        ListError::Line(error) => usage(error),
        ListError::Unreadable(Unreadable { path, source }) => Failure::File { path, action: "read", source },
    }
}

/// `UID:GID`.
pub fn owner(text: &str) -> Result<(u32, u32), &'static str> {
    // The highest number stands for no id in system calls.
    let id = |id: &str| id.parse().ok().filter(|&id: &u32| id != u32::MAX);
    let ids = text.split_once(':').and_then(|(uid, gid)| Some((id(uid)?, id(gid)?)));
    ids.ok_or("write it as UID:GID, two numbers up to 4294967294")
}

fn file_name(name: OsString) -> Result<CString, &'static str> {
    const REFUSAL: &str = "not the name of a file: it has no slash";
    match name.as_bytes() {
        b"" | b"." | b".." => Err(REFUSAL),
        bytes if bytes.contains(&b'/') => Err(REFUSAL),
        _ => CString::new(name.into_vec()).map_err(|_| REFUSAL),
    }
}

fn xattr(text: OsString) -> Result<Xattr, SyntaxError> {
    parse_xattr(text.as_bytes())
}

/// Reads a file.
pub fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|source| Failure::File { path: path.to_owned(), action: "read", source })
}

/// Reads a file, or standard input.
pub fn read_or_stdin(path: &Path) -> Result<Vec<u8>, Failure> {
    if path != Path::new("-") {
        return read(path);
    }
    let mut text = Vec::new();
    let read = io::stdin().lock().read_to_end(&mut text);
    read.map_err(|source| Failure::File { path: "standard input".into(), action: "read", source })?;
    Ok(text)
}

/// An error of the value of an option.
pub fn named(option: &str, error: &SyntaxError) -> Failure {
    Failure::Usage(format!("{option}: {error}"))
}

/// An error of what was given.
pub fn usage(error: impl std::fmt::Display) -> Failure {
    Failure::Usage(error.to_string())
}
