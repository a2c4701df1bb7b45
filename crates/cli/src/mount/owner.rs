//! Whose files a mount shows.

use crate::exit::Failure;
use crate::pack;
use kiln_mount::fuse::{Ids, Owners};
use kiln_source::filter::{IdMap, IdRange};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What an id becomes that is in no range of a map, as in user namespaces.
const OVERFLOW_ID: u32 = 65534;

/// Options about owners.
#[derive(Clone, Debug, Default, PartialEq, Eq, clap::Args, Serialize, Deserialize)]
pub struct OwnerArgs {
    /// FUSE: all files belong to this user and group, UID:GID, or, with `me`, to the calling user
    #[arg(long, value_name = "me|UID:GID", value_parser = owner, conflicts_with_all = ["uid_map", "gid_map"])]
    owner: Option<(u32, u32)>,

    /// FUSE: translate users: of a run of INSIDE ids in the image, the first becomes OUTSIDE; others become 65534. The
    /// map that `pack` had leads back
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT")]
    #[serde(with = "crate::process::request::texts")]
    uid_map: Vec<IdRange>,

    /// FUSE: translate groups
    #[arg(long, value_name = "INSIDE:OUTSIDE:COUNT")]
    #[serde(with = "crate::process::request::texts")]
    gid_map: Vec<IdRange>,
}

impl OwnerArgs {
    /// The first option that is given.
    pub fn given(&self) -> Option<&'static str> {
        let given = [
            (self.owner.is_some(), "--owner"),
            (!self.uid_map.is_empty(), "--uid-map"),
            (!self.gid_map.is_empty(), "--gid-map"),
        ];
        given.into_iter().find_map(|(is_given, name)| is_given.then_some(name))
    }

    /// Whose files they are.
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

fn owner(text: &str) -> Result<(u32, u32), &'static str> {
    match text {
        "me" => Ok((rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())),
        _ => pack::owner(text).map_err(|_| "write it as `me`, or as UID:GID, two numbers up to 4294967294"),
    }
}
