//! Owners of the files that a mount shows.

use crate::exit::Failure;
use crate::pack;
use kiln_mount::fuse::{Ids, Owners};
use kiln_tree::policy::{IdMap, IdRange};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Replacement for an id outside all ranges of a map, as in user namespaces.
const OVERFLOW_ID: u32 = 65534;

/// Options about owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct OwnerArgs {
    /// Show all files as those of this user and group, or as yours
    #[arg(long, value_name = "me|UID:GID", value_parser = owner, conflicts_with_all = ["uid_map", "gid_map"])]
    owner: Option<(u32, u32)>,

    /// Translate users back (see `kiln help metadata`)
    #[arg(long, value_name = "IN:OUT:COUNT")]
    #[serde(with = "crate::process::request::texts")]
    uid_map: Vec<IdRange>,

    /// Translate groups back
    #[arg(long, value_name = "IN:OUT:COUNT")]
    #[serde(with = "crate::process::request::texts")]
    gid_map: Vec<IdRange>,
}

impl OwnerArgs {
    /// Returns arguments that show all files as those of this user and group.
    pub fn me() -> Self {
        Self { owner: Some(me()), ..Self::default() }
    }

    /// Returns the first option that is given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.owner.is_some(), "--owner"),
            (!self.uid_map.is_empty(), "--uid-map"),
            (!self.gid_map.is_empty(), "--gid-map"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// Returns the owners.
    ///
    /// # Errors
    /// Ranges that overlap.
    pub fn owners(&self) -> Result<Owners, Failure> {
        let (uid, gid) = self.owner.unzip();
        Ok(Owners { uid: ids(uid, &self.uid_map, "--uid-map")?, gid: ids(gid, &self.gid_map, "--gid-map")? })
    }
}

fn ids(all: Option<u32>, ranges: &[IdRange], option: &str) -> Result<Ids, Failure> {
    if let Some(id) = all {
        return Ok(Ids::All(id));
    }
    if ranges.is_empty() {
        return Ok(Ids::Unchanged);
    }
    let map = IdMap::outward(ranges).map_err(|error| pack::named(option, &error))?;
    Ok(Ids::Mapped(Arc::new(move |id| map.get(id).unwrap_or(OVERFLOW_ID))))
}

fn me() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn owner(text: &str) -> Result<(u32, u32), &'static str> {
    match text {
        "me" => Ok(me()),
        _ => pack::owner(text).map_err(|_| "write it as `me`, or as UID:GID, two numbers up to 4294967294"),
    }
}
