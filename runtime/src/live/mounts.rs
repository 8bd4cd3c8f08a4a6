//! Mounts, as proc_pid_mountinfo(5) lists them.

use serde::Serialize;

/// A mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountView {
    /// The kernel's number of it.
    pub id: u64,
    /// Where, as the process sees it.
    pub target: String,
    /// Which part of the file system is mounted there.
    pub root: String,
    /// Type of the file system.
    pub kind: String,
    /// Options of the mount.
    pub options: Vec<String>,
    /// It exchanges mount events with others.
    pub propagates: bool,
}

impl MountView {
    /// Whether it has an option.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|found| found == option)
    }

    /// The mounts that a text of proc_pid_mountinfo(5) lists. Lines that are none are left out; octal escapes stay.
    pub fn list(text: &str) -> Vec<MountView> {
        text.lines().filter_map(line).collect()
    }
}

fn line(line: &str) -> Option<MountView> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    let [id, _parent, _device, root, target, options, tags @ ..] = &fields[..] else { return None };
    Some(MountView {
        id: id.parse().ok()?,
        target: (*target).to_owned(),
        root: (*root).to_owned(),
        kind: after.split(' ').next()?.to_owned(),
        options: options.split(',').map(str::to_owned).collect(),
        propagates: tags.iter().any(|tag| tag.starts_with("shared:") || tag.starts_with("master:")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let mounts = MountView::list(
            "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\njunk\n",
        );
        assert_eq!(mounts.len(), 1);
        let mount = &mounts[0];
        assert_eq!((mount.id, &*mount.root, &*mount.target, &*mount.kind), (36, "/mnt1", "/mnt2", "ext3"));
        assert!(mount.propagates && mount.has("noatime") && !mount.has("ro"));
    }

    fn text(mount: &MountView) -> String {
        let MountView { id, target, root, kind, options, propagates } = mount;
        let tag = if *propagates { " shared:1" } else { "" };
        format!("{id} 1 0:1 {root} {target} {}{tag} - {kind} source rw\n", options.join(","))
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_survived_and_what_is_read_is_there(
            lines in proptest::collection::vec("[0-9]{0,3} 1 0:1 [/a\\\\]{0,4} /[ab]{0,3} [a-z,]{0,6}( shared:1)?( x:)? - ?[a-z]{0,4}|\\PC{0,40}", 0..8),
        ) {
            let whole = lines.join("\n");
            let mounts = MountView::list(&whole);
            proptest::prop_assert!(mounts.len() <= whole.lines().count());
            let again: Vec<MountView> = mounts.iter().flat_map(|mount| MountView::list(&text(mount))).collect();
            proptest::prop_assert_eq!(mounts, again);
        }
    }
}
