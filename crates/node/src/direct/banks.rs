//! The banks that one process has mapped, and how it finds the one that leads to an address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toehold_shm::direct::Side;
use toehold_shm::{Change, Process};

use super::bank::{Bank, Own};
use super::table::{Addresses, BankTable, Entry, OWN};

/// Banks that were mapped, by their slots. Parents give theirs to forked children.
#[derive(Debug, Default)]
pub(crate) struct MappedBanks(Mutex<HashMap<u16, Arc<Bank>>>);

impl MappedBanks {
    /// Begins anew in a forked child, which changes nothing of its parent's any more.
    pub(crate) fn of_child(&self) -> MappedBanks {
        // A thread that the child does not have may have been changing it.
        let banks = self
            .0
            .try_lock()
            .map_or_else(|_| HashMap::new(), |banks| banks.clone());
        MappedBanks(Mutex::new(banks))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u16, Arc<Bank>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, entry: &Entry) -> Option<Arc<Bank>> {
        let banks = self.lock();
        let bank = banks.get(&entry.slot)?;
        (bank.generation() == entry.generation).then(|| Arc::clone(bank))
    }

    /// Keeps a bank, in place of an earlier one of its slot. If another thread was faster, that
    /// one's is returned.
    fn keep(&self, bank: Bank) -> Arc<Bank> {
        let _change = Process::this().map(Change::begin);
        let mut banks = self.lock();
        match banks.get(&bank.slot()) {
            Some(known) if known.generation() == bank.generation() => Arc::clone(known),
            _ => {
                let bank = Arc::new(bank);
                banks.insert(bank.slot(), Arc::clone(&bank));
                bank
            }
        }
    }

    /// Lets go of banks that are there no more.
    fn sweep(&self, table: &BankTable) {
        let _change = Process::this().map(Change::begin);
        let is_there = |bank: &Arc<Bank>| {
            let entry = table.get(bank.slot());
            entry.is_some_and(|entry| entry.generation == bank.generation())
        };
        self.lock().retain(|_, bank| is_there(bank));
    }
}

/// The banks that lead to an address, as of an epoch of the table.
#[derive(Debug, Default)]
struct Routes {
    epoch: Option<u64>,
    by_address: HashMap<IpAddr, Vec<u16>>,
    accepting: Vec<u16>,
}

/// Finds the banks of a node for one of its processes.
#[derive(Debug)]
pub(crate) struct Banks {
    table: BankTable,
    own: Own,
    mapped: Arc<MappedBanks>,
    routes: Mutex<Routes>,
}

impl Banks {
    pub(crate) fn new(table: BankTable, own: Own, mapped: Arc<MappedBanks>) -> Banks {
        Banks {
            table,
            own,
            mapped,
            routes: Mutex::default(),
        }
    }

    /// The banks in which this node opens connections to an address, the first one first.
    pub(crate) fn towards(&self, address: IpAddr) -> Vec<Entry> {
        if is_own(&self.table, address) {
            return self.present(&OWN[..1], Side::Opening);
        }
        let routes = self.routes();
        let slots = routes.by_address.get(&address);
        let mut found = self.present(slots.map_or(&[], Vec::as_slice), Side::Opening);
        // A slot may have got another bank by now.
        found.retain(|entry| entry.addresses.has(address));
        found
    }

    /// The banks in which this node accepts connections.
    pub(crate) fn accepting(&self) -> Vec<Entry> {
        self.present(&self.routes().accepting, Side::Accepting)
    }

    fn present(&self, slots: &[u16], side: Side) -> Vec<Entry> {
        let entries = slots.iter().filter_map(|&slot| self.table.get(slot));
        entries
            .filter(|entry| entry.side == side && !entry.is_gone)
            .collect()
    }

    /// The table's entry of a slot.
    pub(crate) fn entry(&self, slot: u16) -> Option<Entry> {
        self.table.get(slot)
    }

    /// Changes whenever a bank comes or goes.
    #[inline]
    pub(crate) fn epoch(&self) -> u64 {
        self.table.epoch()
    }

    /// The parts that all banks have in common.
    pub(crate) fn own(&self) -> &Own {
        &self.own
    }

    /// Whether the other side of a bank is there.
    #[inline]
    pub(crate) fn is_there(&self, bank: &Bank) -> bool {
        self.table.is_there(bank.slot(), bank.generation())
    }

    /// The bank of a slot, mapped. `ask` gets its descriptors from the engine. Returns `None` if
    /// the bank is not there any more, or this process cannot map it.
    pub(crate) fn map(
        &self,
        entry: &Entry,
        ask: impl FnOnce(&Entry) -> Option<Vec<OwnedFd>>,
    ) -> Option<Arc<Bank>> {
        if let Some(bank) = self.mapped.get(entry) {
            return Some(bank);
        }
        let bank = Bank::open(entry, &self.own, ask(entry)?).ok()?;
        Some(self.mapped.keep(bank))
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        let mut routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let epoch = self.table.epoch();
        if routes.epoch != Some(epoch) {
            let _change = Process::this().map(Change::begin);
            *routes = routes_of(&self.table, epoch);
            self.mapped.sweep(&self.table);
        }
        routes
    }
}

/// Whether an address is the node's own, or loops back to it.
fn is_own(table: &BankTable, address: IpAddr) -> bool {
    let own = table.get(OWN[0]);
    address.is_loopback() || own.is_some_and(|own| own.addresses.has(address))
}

#[cold]
fn routes_of(table: &BankTable, epoch: u64) -> Routes {
    let mut routes = Routes {
        epoch: Some(epoch),
        ..Routes::default()
    };
    let mut owners: HashMap<IpAddr, Addresses> = HashMap::new();
    let mut claimed_twice = Vec::new();
    for entry in table.iter() {
        if entry.side == Side::Accepting {
            routes.accepting.push(entry.slot);
            continue;
        }
        for address in entry.addresses.all() {
            // Of an address that two members have, only TCP knows whose it is.
            if *owners.entry(address).or_insert(entry.addresses) != entry.addresses {
                claimed_twice.push(address);
            }
            routes.by_address.entry(address).or_default().push(entry.slot);
        }
    }
    for address in claimed_twice {
        routes.by_address.remove(&address);
    }
    routes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::bank::tests::own;
    use crate::direct::table::tests::{entry, table};

    fn slots(entries: &[Entry]) -> Vec<u16> {
        entries.iter().map(|entry| entry.slot).collect()
    }

    fn with_own(table: &BankTable) {
        let addresses = Addresses {
            ipv4: Some([10, 77, 0, 1].into()),
            ipv6: Some("fd77::1".parse().unwrap()),
            mac: [2, 0, 0, 0, 0, 1],
        };
        for (slot, side) in [(0, Side::Opening), (1, Side::Accepting)] {
            let own = Entry {
                addresses,
                ..entry(slot, 1, side)
            };
            table.set(&own);
        }
    }

    #[test]
    fn address_leads_to_banks_of_its_member() {
        let table = table();
        let banks = Banks::new(table.clone(), own(), Arc::default());
        assert!(banks.towards("127.0.0.1".parse().unwrap()).is_empty());
        with_own(&table);
        table.set(&entry(2, 1, Side::Opening));
        table.set(&entry(3, 1, Side::Accepting));
        table.set(&entry(4, 1, Side::Opening));
        for own in ["127.0.0.1", "127.1.2.3", "::1", "10.77.0.1", "fd77::1"] {
            assert_eq!(slots(&banks.towards(own.parse().unwrap())), [0], "{own}");
        }
        for theirs in ["10.77.0.2", "fd77::2", "fe80::ff:fe00:2"] {
            assert_eq!(slots(&banks.towards(theirs.parse().unwrap())), [2, 4], "{theirs}");
        }
        assert!(banks.towards("10.77.0.3".parse().unwrap()).is_empty());
        assert_eq!(slots(&banks.accepting()), [1, 3]);
        table.set(&Entry {
            is_gone: true,
            ..entry(2, 1, Side::Opening)
        });
        assert_eq!(slots(&banks.towards("10.77.0.2".parse().unwrap())), [4]);
    }

    #[test]
    fn address_of_two_members_leads_nowhere() {
        let table = table();
        let banks = Banks::new(table.clone(), own(), Arc::default());
        table.set(&entry(2, 1, Side::Opening));
        let mut thief = entry(3, 1, Side::Opening);
        thief.addresses.mac = [2, 0, 0, 0, 0, 9];
        thief.addresses.ipv6 = None;
        table.set(&thief);
        assert!(banks.towards("10.77.0.2".parse().unwrap()).is_empty());
        assert_eq!(slots(&banks.towards("fd77::2".parse().unwrap())), [2]);
    }

    #[test]
    fn bank_is_mapped_once_and_again_when_another_has_its_slot() {
        let table = table();
        let banks = Banks::new(table.clone(), own(), Arc::default());
        let make = |generation| {
            let entries = [
                entry(0, generation, Side::Opening),
                entry(1, generation, Side::Accepting),
            ];
            entries.iter().for_each(|entry| table.set(entry));
            let made = Bank::with_itself([&entries[0], &entries[1]], &own(), 1);
            (entries[0], made.unwrap())
        };
        let (first, [kept, _]) = make(1);
        assert!(banks.map(&first, |_| None).is_none());
        let mapped = banks.map(&first, |_| kept.to_list().ok()).unwrap();
        let again = banks.map(&first, |_| panic!("it is mapped")).unwrap();
        assert!(Arc::ptr_eq(&mapped, &again));
        let child = Banks::new(table.clone(), own(), Arc::new(banks.mapped.of_child()));
        assert!(child.map(&first, |_| None).is_some(), "the parent has mapped it");
        let (second, [kept, _]) = make(2);
        let other = banks.map(&second, |_| kept.to_list().ok()).unwrap();
        assert_eq!(other.generation(), 2);
        banks.accepting();
        assert!(banks.map(&first, |_| None).is_none());
    }
}
