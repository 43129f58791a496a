//! Processes by `/proc`: the descendants of a process, the members of a recorded group, and ending what is left of one.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tracing::debug;

use super::scratch::could_be_ours;

/// A process group as a journal records it, with enough to find it again and to notice that a number was reused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The guardian: leader of the session in which every process of the trial lives.
    pub guardian: i32,
    /// The guardian's start time in clock ticks since boot.
    pub guardian_started: u64,
    pub engine: i32,
    /// The identity of the boot: after a reboot the numbers mean other processes.
    pub boot: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) pid: i32,
    pub(super) state: char,
    pub(super) parent: i32,
    pub(super) session: i32,
    pub(super) started: u64,
}

/// Reads the fields behind the command name, which may itself hold spaces and parentheses.
fn parse_stat(text: &str) -> Option<Stat> {
    let pid = text.split(' ').next()?.parse().ok()?;
    let fields: Vec<&str> = text.get(text.rfind(')')? + 2..)?.split(' ').collect();
    Some(Stat {
        pid,
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

pub(super) fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Every process, zombies included.
fn every() -> impl Iterator<Item = Stat> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok()).filter_map(stat)
}

fn all() -> Vec<Stat> {
    every().filter(|s| s.state != 'Z').collect()
}

/// Every living process below `ancestor`, that one left out.
pub(super) fn descendants(ancestor: i32) -> Vec<i32> {
    let processes = all();
    let mut family = BTreeSet::from([ancestor]);
    loop {
        let before = family.len();
        family.extend(processes.iter().filter(|p| family.contains(&p.parent)).map(|p| p.pid).collect::<Vec<_>>());
        if family.len() == before {
            break;
        }
    }
    family.remove(&ancestor);
    family.into_iter().collect()
}

/// The identity of the current boot; empty where the kernel does not tell it.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The living members of a recorded group: the processes in the session of its guardian.
///
/// The kernel does not reuse a number while a session of that number exists. If the guardian's number belongs to a process that started at
/// another time, the session has ended, and the group has no members.
fn members(group: &Group) -> Vec<i32> {
    if group.boot != boot_id() || stat(group.guardian).is_some_and(|s| s.started != group.guardian_started) {
        return Vec::new();
    }
    all()
        .into_iter()
        .filter(|s| s.session == group.guardian && s.started >= group.guardian_started)
        .map(|s| s.pid)
        .collect()
}

/// The most memory, in bytes, that each living process of a recorded group held at once, summed. A container's limit must leave room for
/// it. Pages that processes share count more than once. `None` if nothing is known.
pub fn peak_memory(group: &Group) -> Option<u64> {
    let peaks = members(group).into_iter().filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Some(peaks.sum::<u64>() * 1024).filter(|bytes| *bytes > 0)
}

/// Living processes whose `TMPDIR` is that folder. Everything that an engine starts inherits it, also what moved to a session of its own and
/// lost its parents.
fn marked(scratch: &Path) -> Vec<i32> {
    if !could_be_ours(scratch) {
        return Vec::new();
    }
    let mark = [b"TMPDIR=", scratch.as_os_str().as_encoded_bytes()].concat();
    let has_mark = |pid: &i32| {
        let variables = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        variables.split(|b| *b == 0).any(|variable| variable == mark)
    };
    all().into_iter().map(|s| s.pid).filter(has_mark).collect()
}

/// Kills what is left of a recorded group and of the engine that had that folder. Returns how many processes it found.
pub async fn sweep(group: &Group, scratch: &Path) -> usize {
    let mut found = BTreeSet::new();
    for _ in 0..100 {
        let alive: BTreeSet<i32> = members(group).into_iter().chain(marked(scratch)).collect();
        if alive.is_empty() {
            break;
        }
        for pid in &alive {
            found.insert(*pid);
            // It may have ended since it was listed.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    reap(group, &found);
    debug!(guardian = group.guardian, ?found, "processes of a group are ended");
    found.len()
}

/// Reaps zombies of a recorded group whose guardian died before it could. They are children of this process where it is a subreaper or
/// process 1 of a container. [`super::Child`] reaps the guardian itself.
fn reap(group: &Group, ended: &BTreeSet<i32>) {
    let me = std::process::id() as i32;
    let is_theirs = |s: &Stat| s.session == group.guardian || ended.contains(&s.pid);
    for dead in every().filter(|s| s.state == 'Z' && s.parent == me && is_theirs(s)) {
        if dead.pid != group.guardian {
            // It may have been reaped since it was listed.
            let _ = waitpid(Pid::from_raw(dead.pid), Some(WaitPidFlag::WNOHANG));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_name_may_hold_anything() {
        let line = "42 (VLLM) :E (x) S 7 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2";
        assert_eq!(parse_stat(line), Some(Stat { pid: 42, state: 'S', parent: 7, session: 40, started: 987_654 }));
        assert_eq!(parse_stat("garbage"), None);
    }

    #[test]
    fn a_group_whose_leader_started_at_another_time_is_a_stranger() {
        let me = std::process::id() as i32;
        let own = stat(me).unwrap();
        let mut group = Group {
            guardian: own.session,
            guardian_started: stat(own.session).map_or(0, |s| s.started),
            engine: me,
            boot: boot_id(),
        };
        assert!(members(&group).contains(&me));
        group.guardian_started += 1;
        assert!(stat(own.session).is_none() || members(&group).is_empty());
        group.guardian_started -= 1;
        group.boot = "another boot".into();
        assert!(members(&group).is_empty());
    }

    #[tokio::test]
    async fn what_a_dead_guardian_leaves_is_ended_and_waited_for() {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        #[expect(clippy::disallowed_methods, reason = "this test stands for a guardian that starts an engine")]
        let mut guardian = std::process::Command::new("setsid").args(["sh", "-c", "sleep 100 & wait"]).spawn().unwrap();
        let session = guardian.id() as i32;
        let ours = || every().filter(|s| s.session == session && s.pid != session).collect::<Vec<Stat>>();
        for _ in 0..500 {
            if !ours().is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let guardian_started = stat(session).unwrap().started;
        guardian.kill().unwrap();
        guardian.wait().unwrap();
        let group = Group { guardian: session, guardian_started, engine: session, boot: boot_id() };
        assert_eq!(sweep(&group, Path::new("")).await, 1);
        assert_eq!(ours(), []);
    }

    #[tokio::test]
    async fn an_engine_that_left_every_session_is_found_by_its_folder() {
        nix::sys::prctl::set_child_subreaper(true).unwrap();
        let scratch = super::super::scratch::make().unwrap();
        #[expect(clippy::disallowed_methods, reason = "this test stands for an engine that leaves its session")]
        let mut left = std::process::Command::new("setsid")
            .args(["--fork", "sleep", "100"])
            .env("TMPDIR", scratch.path())
            .spawn()
            .unwrap();
        left.wait().unwrap();
        let group = Group { guardian: i32::MAX, guardian_started: 0, engine: i32::MAX, boot: boot_id() };
        assert_eq!(sweep(&group, Path::new("/tmp")).await, 0, "the folder of everybody marks nobody");
        // The fork may still be on its way to its program.
        for _ in 0..500 {
            if !marked(scratch.path()).is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(sweep(&group, scratch.path()).await, 1);
        assert!(marked(scratch.path()).is_empty());
    }
}
