//! Rights of users over a node: its own user and root may do everything, others what its settings
//! and its fabric's directory give them.

use std::fmt::{self, Display};
use std::os::fd::BorrowedFd;
use std::str::FromStr;

use nix::unistd::{Group, User};
use toehold_link::credentials::{self, PeerCredentials};
use toehold_link::mq::{Reach, SocketAccess};

use crate::settings::NodeSettings;

/// Users or groups of one setting, at most.
const MAX_IDS: usize = 64;

/// A kind of request that a client may make to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Right {
    /// To read the node's status.
    Read,
    /// To be a process of the node.
    Attach,
    /// To end the node, to record its frames, to place its stack.
    Operate,
}

/// The rights of one client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rights {
    /// The right [`Right::Read`].
    pub read: bool,
    /// The right [`Right::Attach`].
    pub attach: bool,
    /// The right [`Right::Operate`].
    pub operate: bool,
}

impl Rights {
    /// All rights.
    pub const ALL: Rights = Rights {
        read: true,
        attach: true,
        operate: true,
    };

    /// The rights of a process that came in by another one's descriptor.
    pub const BY_DOOR: Rights = Rights {
        read: true,
        attach: true,
        operate: false,
    };

    /// Whether a right is among them.
    pub fn has(self, right: Right) -> bool {
        match right {
            Right::Read => self.read,
            Right::Attach => self.attach,
            Right::Operate => self.operate,
        }
    }
}

/// The users that a node lets in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Access {
    /// Users whose programs may attach.
    pub users: UserIds,
    /// Groups whose members' programs may attach.
    pub groups: GroupIds,
    /// The group whose members may operate the node.
    pub admins: Option<GroupId>,
    /// The group whose members may read: the directory's, if they may join the fabric.
    pub readers: Option<u32>,
}

impl Access {
    /// The access that the settings of a node and its fabric's directory give.
    pub fn of(settings: &NodeSettings, directory: SocketAccess) -> Access {
        Access {
            users: settings.allow_user.clone(),
            groups: settings.allow_group.clone(),
            admins: settings.admin_group,
            readers: (directory.reach >= Reach::Group).then_some(directory.group),
        }
    }

    /// Whether users may connect to its control socket that are not the node's own and that the
    /// fabric's directory does not let in.
    pub(super) fn lets_others_in(&self) -> bool {
        !self.users.0.is_empty() || !self.groups.0.is_empty() || self.admins.is_some()
    }

    /// The rights of the process at the other end of a connection.
    pub fn rights_of(&self, socket: BorrowedFd<'_>) -> Rights {
        let Ok(client) = PeerCredentials::of(socket) else {
            return Rights::default();
        };
        match credentials::is_own_user(socket) {
            true => Rights::ALL,
            false => self.rights(&client),
        }
    }

    /// The rights of a client that is not of the node's own user.
    fn rights(&self, client: &PeerCredentials) -> Rights {
        // Users that the user namespace does not know have one number together.
        let is_named = credentials::is_named(client.uid);
        if is_named && client.uid == 0 {
            return Rights::ALL;
        }
        let attach = is_named && self.users.0.contains(&client.uid)
            || self.groups.0.iter().any(|&group| client.is_in(group));
        let operate = self.admins.is_some_and(|GroupId(group)| client.is_in(group));
        Rights {
            read: attach || operate || self.readers.is_some_and(|group| client.is_in(group)),
            attach,
            operate,
        }
    }
}

macro_rules! ids {
    ($($(#[doc = $doc:literal])+ $name:ident $number:ident;)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Clone, Default, PartialEq, Eq)]
            pub struct $name(pub Vec<u32>);

            impl FromStr for $name {
                type Err = UnknownId;

                fn from_str(text: &str) -> Result<Self, UnknownId> {
                    let ids = text.split(',').filter(|id| !id.is_empty()).map($number);
                    let ids: Vec<u32> = ids.collect::<Option<_>>().ok_or(UnknownId)?;
                    (ids.len() <= MAX_IDS).then_some($name(ids)).ok_or(UnknownId)
                }
            }

            impl Display for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    let ids: Vec<String> = self.0.iter().map(u32::to_string).collect();
                    f.write_str(&ids.join(","))
                }
            }
        )+
    };
}

ids! {
    /// Users, by number. They are read by name, too.
    UserIds user;
    /// Groups, by number. They are read by name, too.
    GroupIds group;
}

/// A group, by number. It is read by name, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupId(pub u32);

/// The text names no user or no group of this system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no user or group of this system")]
pub struct UnknownId;

impl FromStr for GroupId {
    type Err = UnknownId;

    fn from_str(text: &str) -> Result<Self, UnknownId> {
        group(text).map(GroupId).ok_or(UnknownId)
    }
}

impl Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn user(text: &str) -> Option<u32> {
    // The highest number stands for none.
    let number = text.parse().ok().filter(|&number| number != u32::MAX);
    number.or_else(|| Some(User::from_name(text).ok()??.uid.as_raw()))
}

fn group(text: &str) -> Option<u32> {
    let number = text.parse().ok().filter(|&number| number != u32::MAX);
    number.or_else(|| Some(Group::from_name(text).ok()??.gid.as_raw()))
}

/// A user for people: the name, or the number of one without a name.
pub fn name_of_user(uid: u32) -> String {
    let found = User::from_uid(nix::unistd::Uid::from_raw(uid));
    match found {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(uid: u32, gid: u32, groups: &[u32]) -> PeerCredentials {
        PeerCredentials {
            pid: None,
            uid,
            gid,
            groups: groups.to_vec(),
        }
    }

    fn access() -> Access {
        Access {
            users: "1502".parse().unwrap(),
            groups: "2000,2001".parse().unwrap(),
            admins: Some("3000".parse().unwrap()),
            readers: Some(4000),
        }
    }

    #[test]
    fn rights_are_those_of_user_and_groups() {
        let rights = |uid, gid, groups: &[u32]| access().rights(&client(uid, gid, groups));
        assert_eq!(rights(0, 0, &[]), Rights::ALL);
        assert_eq!(rights(1502, 1502, &[]), Rights::BY_DOOR);
        assert_eq!(rights(1503, 2001, &[]), Rights::BY_DOOR);
        assert_eq!(rights(1503, 1503, &[5, 2000]), Rights::BY_DOOR);
        let operates = Rights {
            read: true,
            attach: false,
            operate: true,
        };
        assert_eq!(rights(1503, 1503, &[3000]), operates);
        assert_eq!(rights(1502, 1503, &[3000]), Rights::ALL);
        let reads = Rights {
            read: true,
            ..Rights::default()
        };
        assert_eq!(rights(1503, 4000, &[]), reads);
        assert_eq!(rights(1503, 1503, &[1502]), Rights::default());
    }

    #[test]
    fn user_number_of_several_users_gives_no_right() {
        let unknown = 65534;
        if !credentials::is_named(unknown) {
            let access = Access {
                users: UserIds(vec![unknown]),
                groups: GroupIds(vec![unknown]),
                ..Access::default()
            };
            assert_eq!(access.rights(&client(unknown, unknown, &[])), Rights::default());
        }
    }

    #[test]
    fn users_and_groups_have_names_and_numbers() {
        assert_eq!("root,7".parse(), Ok(UserIds(vec![0, 7])));
        assert_eq!("".parse(), Ok(UserIds(Vec::new())));
        assert_eq!(UserIds(vec![0, 7]).to_string(), "0,7");
        assert_eq!("root".parse(), Ok(GroupId(0)));
        for bad in ["no such user", "-1", "4294967295", "1 2"] {
            assert_eq!(bad.parse::<UserIds>(), Err(UnknownId), "{bad}");
        }
        assert!(vec!["1"; MAX_IDS + 1].join(",").parse::<GroupIds>().is_err());
        assert_eq!(name_of_user(0), "root");
        assert_eq!(name_of_user(3_999_999_999), "3999999999");
    }
}
