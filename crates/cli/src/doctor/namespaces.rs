//! Namespaces, which `kiln run` needs.

use super::Finding;
use crate::process::fork::{Side, fork};
use crate::run::namespaces;
use rustix::process::{WaitOptions, waitpid};
use std::process;

/// Tries namespaces in a process of its own.
pub fn findings() -> Vec<Finding> {
    const NAME: &str = "namespaces for kiln run";
    let help = "sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone=1, \
                kernel.apparmor_restrict_unprivileged_userns=0; kiln mount works without";
    let child = match fork() {
        Ok(Side::Parent(child)) => child,
        Ok(Side::Child) => process::exit(match namespaces::enter(false) {
            Ok(false) => 0,
            Ok(true) => 1,
            Err(_) => 2,
        }),
        Err(error) => return vec![Finding::unknown(NAME, error.to_string(), "")],
    };
    let status = waitpid(Some(child), WaitOptions::empty()).ok().flatten().and_then(|(_, status)| status.exit_status());
    vec![match status {
        Some(0) => Finding::yes(NAME, "as root"),
        Some(1) => Finding::yes(NAME, "with a user namespace"),
        _ => Finding::no(NAME, "not permitted", help),
    }]
}
