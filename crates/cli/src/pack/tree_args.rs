//! Options of the contents and metadata of an image.

use super::arg_files::{named, read, read_or_stdin, usage};
use super::edit_args::EditArgs;
use crate::exit::Failure;
use crate::headings::{FILES, METADATA};
use clap::builder::{OsStringValueParser, TypedValueParser};
use kiln_tree::filter::{Filter, PathList, Regexes, Rule, Rules};
use kiln_tree::policy::{Chmod, IdBase, IdMap, IdPolicy, IdRange, NameGlobs, Policy, Times, XattrPolicy, parse_xattr};
use kiln_tree::{SyntaxError, Xattr};
use std::ffi::{CString, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Options about the files of a tree and their metadata.
#[derive(clap::Args)]
#[command(next_help_heading = METADATA)]
pub struct TreeArgs {
    /// Leave out files that match GLOB, as in .gitignore
    #[arg(long, help_heading = FILES, value_name = "GLOB")]
    exclude: Vec<OsString>,

    /// Read globs to leave out from FILE, one a line
    #[arg(long, help_heading = FILES, value_name = "FILE")]
    exclude_from: Vec<PathBuf>,

    /// Read globs to leave out from files of this name in the tree
    #[arg(long, help_heading = FILES, value_name = "NAME", value_parser = OsStringValueParser::new().try_map(file_name))]
    ignore_file: Vec<CString>,

    /// Leave out paths in which REGEX matches
    #[arg(long, help_heading = FILES, value_name = "REGEX")]
    exclude_regex: Vec<String>,

    /// Pack only paths that FILE lists; - is standard input
    #[arg(long, help_heading = FILES, value_name = "FILE")]
    from_list: Option<PathBuf>,

    /// Leave out what is mounted in the tree
    #[arg(long, help_heading = FILES)]
    one_file_system: bool,

    /// Make each hard link a file of its own
    #[arg(long, help_heading = FILES)]
    hard_dereference: bool,

    /// Give everything to root, as --owner 0:0 does
    #[arg(long, conflicts_with_all = ["owner", "uid_map", "gid_map"])]
    all_root: bool,

    /// Give everything to this user and group
    #[arg(long, value_name = "UID:GID", value_parser = owner, conflicts_with_all = ["uid_map", "gid_map"])]
    owner: Option<(u32, u32)>,

    /// Translate users (see `kiln help metadata`)
    #[arg(long, value_name = "IN:OUT:COUNT")]
    uid_map: Vec<IdRange>,

    /// Translate groups
    #[arg(long, value_name = "IN:OUT:COUNT")]
    gid_map: Vec<IdRange>,

    /// Add N to each user id
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true, allow_negative_numbers = true)]
    uid_offset: i64,

    /// Add N to each group id
    #[arg(long, value_name = "N", default_value_t, hide_default_value = true, allow_negative_numbers = true)]
    gid_offset: i64,

    /// Change permissions, as in u+rwX,go-w or D755,F644
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    chmod: Option<Chmod>,

    /// Set times: keep, clamp:SECS or SECS since 1970
    #[arg(long, value_name = "TIME", default_value = "keep", allow_negative_numbers = true)]
    mtime: Times,

    /// Keep extended attributes, or none
    #[arg(long, value_name = "keep|none", hide_possible_values = true, value_enum, default_value_t)]
    xattrs: XattrsArg,

    /// Keep only extended attributes with these names
    #[arg(long, value_name = "GLOB")]
    xattr_include: Vec<OsString>,

    /// Leave out extended attributes with these names
    #[arg(long, value_name = "GLOB")]
    xattr_exclude: Vec<OsString>,

    /// Fail instead of leaving out attributes
    #[arg(long)]
    strict_xattrs: bool,

    /// Give everything this extended attribute
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(xattr))]
    set_xattr: Vec<Xattr>,

    #[command(flatten)]
    edits: EditArgs,
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
        self.edits.apply(Policy {
            hard_dereference: self.hard_dereference,
            chmod: self.chmod.clone().unwrap_or_default(),
            uid: IdPolicy { base: uid, offset: self.uid_offset },
            gid: IdPolicy { base: gid, offset: self.gid_offset },
            times: self.mtime,
            xattrs: self.xattr_policy()?,
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

    /// Refuses edits of a whole tree, which do not go with `option`.
    ///
    /// # Errors
    /// An edit that names files of the whole tree.
    pub fn refuse_whole_tree(&self, option: &str) -> Result<(), Failure> {
        match self.edits.of_whole_tree() {
            Some(edit) => {
                Err(Failure::Usage(format!("{edit} cannot be used with {option}: a layer is not a whole tree")))
            }
            None => Ok(()),
        }
    }
}

fn ids(all: Option<u32>, map: &[IdRange]) -> Result<IdBase, SyntaxError> {
    Ok(match (all, map) {
        (Some(id), _) => IdBase::All(id),
        (None, []) => IdBase::Keep,
        (None, map) => IdBase::Map(IdMap::inward(map)?),
    })
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
