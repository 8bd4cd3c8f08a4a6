//! The device filter: which device nodes a sandbox may open or make, whatever the file system shows.
//!
//! A filter is a default and its exceptions, because that is all that a v1 `devices` cgroup can hold
//! (cgroup-v1/devices.rst); the v2 program of the same filter means exactly the same.

use std::fmt;

use oci_spec::runtime::{LinuxDeviceCgroup, LinuxDeviceType};

use super::bpf::{self, BpfInsn};
use super::error::CgroupError;
use super::facts::Controller;
use super::group::Cgroup;
use crate::spec::BestEffort;

/// Kinds of device node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DeviceKind {
    /// Block device, `b`.
    Block,
    /// Character device, `c`.
    Char,
}

/// Kinds of access: any of `r` (open for reading), `w` (for writing), `m` (mknod).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Access {
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// Make a node.
    pub mknod: bool,
}

impl Access {
    /// All three.
    pub const ALL: Self = Self { read: true, write: true, mknod: true };

    fn parse(text: &str) -> Option<Self> {
        let mut access = Self { read: false, write: false, mknod: false };
        for letter in text.chars() {
            match letter {
                'r' => access.read = true,
                'w' => access.write = true,
                'm' => access.mknod = true,
                _ => return None,
            }
        }
        Some(access)
    }

    fn overlaps(self, other: Self) -> bool {
        self.read && other.read || self.write && other.write || self.mknod && other.mknod
    }
}

/// The device nodes with a kind, a major and a minor number (absent: any), and some accesses to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceSet {
    /// Block or character.
    pub kind: DeviceKind,
    /// Major number.
    pub major: Option<u32>,
    /// Minor number.
    pub minor: Option<u32>,
    /// Which accesses.
    pub access: Access,
}

impl DeviceSet {
    fn same_nodes(&self, other: &Self) -> bool {
        (self.kind, self.major, self.minor) == (other.kind, other.major, other.minor)
    }

    fn overlaps(&self, other: &Self) -> bool {
        let meet = |a: Option<u32>, b: Option<u32>| a.is_none() || b.is_none() || a == b;
        self.kind == other.kind
            && meet(self.major, other.major)
            && meet(self.minor, other.minor)
            && self.access.overlaps(other.access)
    }
}

/// The form of `devices.list`: `c 1:3 rwm`.
impl fmt::Display for DeviceSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            DeviceKind::Block => 'b',
            DeviceKind::Char => 'c',
        };
        let number = |number: Option<u32>| number.map_or_else(|| "*".to_owned(), |number| number.to_string());
        write!(f, "{kind} {}:{} ", number(self.major), number(self.minor))?;
        let Access { read, write, mknod } = self.access;
        [(read, "r"), (write, "w"), (mknod, "m")]
            .iter()
            .filter(|(on, _)| *on)
            .try_for_each(|(_, s)| f.write_str(s))
    }
}

/// What a rule speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Devices {
    /// Every access to every device.
    All,
    /// Some of them.
    Set(DeviceSet),
}

/// One rule; later rules win over earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceRule {
    /// Allow or deny.
    pub allow: bool,
    /// What.
    pub devices: Devices,
}

impl DeviceRule {
    /// The rules that an OCI rule stands for.
    ///
    /// Type `a` with numbers or with a part of the accesses becomes one rule for each kind: v1 would take
    /// it for everything.
    pub fn from_oci(rule: &LinuxDeviceCgroup) -> Result<Vec<Self>, CgroupError> {
        let fail = |reason| Err(CgroupError::DeviceRule { rule: rule.to_string(), reason });
        let number = |number: Option<i64>| match number {
            // runc and others write -1 for "any".
            None | Some(-1) => Ok(None),
            Some(number) => {
                u32::try_from(number).ok().filter(|&n| i32::try_from(n).is_ok()).map(Some).ok_or(())
            }
        };
        let (Ok(major), Ok(minor)) = (number(rule.major()), number(rule.minor())) else {
            return fail("has a device number out of range");
        };
        let text = rule.access().as_deref().filter(|text| !text.is_empty()).unwrap_or("rwm");
        let Some(access) = Access::parse(text) else {
            return fail("has an access other than r, w and m");
        };
        let kinds: &[DeviceKind] = match rule.typ().unwrap_or_default() {
            LinuxDeviceType::A if (major, minor, access) == (None, None, Access::ALL) => {
                return Ok(vec![Self { allow: rule.allow(), devices: Devices::All }]);
            }
            LinuxDeviceType::A => &[DeviceKind::Block, DeviceKind::Char],
            LinuxDeviceType::B => &[DeviceKind::Block],
            LinuxDeviceType::C | LinuxDeviceType::U => &[DeviceKind::Char],
            LinuxDeviceType::P => return fail("speaks of a FIFO, which is not a device"),
        };
        let set = |&kind| DeviceSet { kind, major, minor, access };
        Ok(kinds.iter().map(|kind| Self { allow: rule.allow(), devices: Devices::Set(set(kind)) }).collect())
    }
}

/// A default and the exceptions from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFilter {
    allow: bool,
    exceptions: Vec<DeviceSet>,
}

impl DeviceFilter {
    /// Compiles rules; without any rule everything is denied.
    ///
    /// A rule that takes back part of an earlier exception is refused: v1 ignores it, or takes back more.
    pub fn compile(rules: &[DeviceRule]) -> Result<Self, CgroupError> {
        let mut filter = Self { allow: false, exceptions: Vec::new() };
        for rule in rules {
            match rule.devices {
                Devices::All => filter = Self { allow: rule.allow, exceptions: Vec::new() },
                Devices::Set(set) if rule.allow == filter.allow => {
                    if filter.exceptions.iter().any(|exception| exception.overlaps(&set)) {
                        return Err(CgroupError::DeviceRule {
                            rule: set.to_string(),
                            reason: "takes back part of an earlier rule, which cgroup v1 cannot express; leave that part out there",
                        });
                    }
                }
                Devices::Set(set) => {
                    match filter.exceptions.iter_mut().find(|earlier| earlier.same_nodes(&set)) {
                        Some(earlier) => {
                            earlier.access.read |= set.access.read;
                            earlier.access.write |= set.access.write;
                            earlier.access.mknod |= set.access.mknod;
                        }
                        None => filter.exceptions.push(set),
                    }
                }
            }
        }
        Ok(filter)
    }

    /// The filter of an OCI resources table.
    pub fn from_oci(rules: &[LinuxDeviceCgroup]) -> Result<Self, CgroupError> {
        let rules = rules.iter().map(DeviceRule::from_oci).collect::<Result<Vec<_>, _>>()?;
        Self::compile(&rules.concat())
    }

    /// Everything is allowed.
    pub fn is_open(&self) -> bool {
        self.allow && self.exceptions.is_empty()
    }

    /// The verdict for what no exception covers.
    pub(super) fn default_verdict(&self) -> bool {
        self.allow
    }

    pub(super) fn exceptions(&self) -> &[DeviceSet] {
        &self.exceptions
    }

    /// The v1 files and what to write to them, in order.
    fn v1_writes(&self) -> Vec<(&'static str, Vec<String>)> {
        // Denying all first also drops the exceptions inherited from the parent.
        let mut writes = vec![("devices.deny", vec!["a".to_owned()])];
        if self.allow {
            writes.push(("devices.allow", vec!["a".to_owned()]));
        }
        let file = if self.allow { "devices.deny" } else { "devices.allow" };
        writes.push((file, self.exceptions.iter().map(ToString::to_string).collect()));
        writes
    }

    /// `devices.list` under this filter. While the default is to allow, the kernel lists no exceptions.
    fn v1_list(&self) -> Vec<String> {
        if self.allow {
            return vec!["a *:* rwm".into()];
        }
        self.exceptions.iter().map(ToString::to_string).collect()
    }

    /// Loads the program for v2 directories, so that this process and its forks need not load it again.
    pub(crate) fn load(&self) -> Result<(), CgroupError> {
        if self.is_open() { Ok(()) } else { bpf::load(self, "any cgroup".as_ref()).map(drop) }
    }

    /// The program for a v2 directory.
    pub fn program(&self) -> Vec<BpfInsn> {
        bpf::device_program(self)
    }
}

impl fmt::Display for DeviceFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verb, rest) = if self.allow { ("refuse", "allow") } else { ("allow", "refuse") };
        let listed: Vec<_> = self.exceptions.iter().map(ToString::to_string).collect();
        let listed = if listed.is_empty() { "no device".into() } else { listed.join(", ") };
        write!(f, "{verb} {listed}; {rest} every other device")
    }
}

/// The device filter as the kernel tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReadback {
    /// Lines of the v1 `devices.list`, where a v1 tree filters.
    pub v1: Option<Vec<String>>,
    /// Ids of the device programs attached to the v2 directory, where one filters.
    pub v2: Option<Vec<u32>>,
    /// The list is what was written, and the program is attached; something filters.
    pub holds: bool,
}

impl Cgroup {
    /// Puts the filter on every directory that can carry one; to be done before anything untrusted runs in it.
    ///
    /// On a hybrid host both interfaces must then allow an access.
    pub fn filter_devices(&mut self, filter: &DeviceFilter) -> Result<(), CgroupError> {
        match self.try_filter_devices(filter) {
            Err(error) if self.best_effort.contains(&BestEffort::Devices) => {
                let text = format!("device filter: {error}");
                if !self.lowered.iter().any(|lowered| lowered.starts_with("device filter: ")) {
                    self.lowered.push(text);
                }
                Ok(())
            }
            result => result,
        }
    }

    fn try_filter_devices(&self, filter: &DeviceFilter) -> Result<(), CgroupError> {
        let (v1, v2) = (self.v1(Controller::Devices), self.v2());
        if v1.is_none() && v2.is_none() {
            return Err(CgroupError::NoDeviceFilter);
        }
        if let Some(tree) = v1 {
            for (file, values) in filter.v1_writes() {
                tree.write_each(file, &values)?;
            }
        }
        if let Some(tree) = v2.filter(|_| !filter.is_open()) {
            bpf::load(filter, &tree.path)?.attach(tree.dir(), &tree.path)?;
        }
        Ok(())
    }

    /// Reads the filter back from the kernel, in the process that put it there.
    pub fn read_device_filter(&self, filter: &DeviceFilter) -> Result<DeviceReadback, CgroupError> {
        let mut readback = DeviceReadback { v1: None, v2: None, holds: false };
        let mut holds = true;
        if let Some(tree) = self.v1(Controller::Devices) {
            let list: Vec<String> = tree.read("devices.list")?.lines().map(str::to_owned).collect();
            holds &= list == filter.v1_list();
            readback.v1 = Some(list);
        }
        if let Some(tree) = self.v2() {
            let attached = bpf::attached(tree.dir(), &tree.path)?;
            holds &= filter.is_open() || attached.contains(&bpf::load(filter, &tree.path)?.id());
            readback.v2 = Some(attached);
        }
        readback.holds = holds && (readback.v1.is_some() || readback.v2.is_some());
        Ok(readback)
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::runtime::LinuxDeviceCgroupBuilder;

    use super::*;

    fn oci(allow: bool, typ: LinuxDeviceType, major: i64, minor: i64, access: &str) -> LinuxDeviceCgroup {
        LinuxDeviceCgroupBuilder::default()
            .allow(allow)
            .typ(typ)
            .major(major)
            .minor(minor)
            .access(access)
            .build()
            .unwrap()
    }

    fn deny_all() -> LinuxDeviceCgroup {
        LinuxDeviceCgroupBuilder::default().allow(false).access("rwm").build().unwrap()
    }

    #[test]
    fn v1_denies_all_before_it_allows() {
        let filter =
            DeviceFilter::from_oci(&[deny_all(), oci(true, LinuxDeviceType::C, 1, 3, "rw")]).unwrap();
        let writes = filter.v1_writes();
        assert_eq!(writes[0], ("devices.deny", vec!["a".into()]));
        assert_eq!(writes[1..], [("devices.allow", vec!["c 1:3 rw".into()])]);
        assert_eq!(filter.v1_list(), ["c 1:3 rw"]);
    }

    /// v1 takes `a 1:3 r` for everything: the numbers are not read.
    #[test]
    fn type_a_with_numbers_does_not_mean_everything() {
        let filter = DeviceFilter::from_oci(&[oci(true, LinuxDeviceType::A, 1, 3, "r")]).unwrap();
        assert_eq!(filter.v1_list(), ["b 1:3 r", "c 1:3 r"]);
    }

    #[test]
    fn minus_one_means_any_number() {
        let filter = DeviceFilter::from_oci(&[oci(true, LinuxDeviceType::C, 136, -1, "rwm")]).unwrap();
        assert_eq!(filter.v1_list(), ["c 136:* rwm"]);
    }

    #[test]
    fn a_rule_for_everything_forgets_those_before_it() {
        let all = LinuxDeviceCgroupBuilder::default().allow(true).build().unwrap();
        let filter =
            DeviceFilter::from_oci(&[deny_all(), oci(true, LinuxDeviceType::C, 1, 3, "r"), all]).unwrap();
        assert!(filter.is_open());
        let all = || vec![String::from("a")];
        let writes = [("devices.deny", all()), ("devices.allow", all()), ("devices.deny", vec![])];
        assert_eq!(filter.v1_writes(), writes);
    }

    #[test]
    fn taking_back_part_of_an_allowed_set_is_refused() {
        let rules =
            [oci(true, LinuxDeviceType::C, 195, -1, "rw"), oci(false, LinuxDeviceType::C, 195, 1, "rw")];
        assert!(matches!(DeviceFilter::from_oci(&rules), Err(CgroupError::DeviceRule { .. })));
        let apart =
            [oci(true, LinuxDeviceType::C, 195, -1, "rw"), oci(false, LinuxDeviceType::C, 1, 1, "rw")];
        assert!(DeviceFilter::from_oci(&apart).is_ok(), "denying what is denied anyway changes nothing");
    }

    #[test]
    fn nonsense_is_refused() {
        for rule in [
            oci(true, LinuxDeviceType::C, 1, 3, "rx"),
            oci(true, LinuxDeviceType::C, -2, 3, "r"),
            oci(true, LinuxDeviceType::C, 1 << 31, 3, "r"),
            oci(true, LinuxDeviceType::P, 1, 3, "r"),
        ] {
            assert!(matches!(DeviceFilter::from_oci(&[rule]), Err(CgroupError::DeviceRule { .. })));
        }
    }
}
