//! A real process that is killed while it changes things.

use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::getppid;
use toehold_shm::{Access, Lease, Leased, OutOfMemory, RegionError, Words};

use super::*;

const SEED: &str = "TOEHOLD_TEST_MEND_SEED";

/// The process that is killed, and one that lives.
const PROGRAM: u16 = 2;
const OTHER: u16 = 3;

fn region_len() -> usize {
    Lease::BYTES_NEEDED + Words::bytes_needed(1) + Waiting::bytes_needed(INTERESTS, HOLDERS)
}

/// The lease, how many steps were made, and what is behind the lease.
fn carve(carver: &mut Carver) -> Result<(Lease, Words, Waiting), OutOfMemory> {
    let (lease, steps) = (carver.lease()?, carver.words(1)?);
    let waiting = Waiting::create(carver, (INTERESTS, HOLDERS), 0)?;
    Ok((lease, steps, waiting))
}

/// Not a test of its own: the program of the test below. It never lets go of the lease.
#[test]
fn a_program_that_changes_things() {
    let Ok(seed) = std::env::var(SEED) else {
        return;
    };
    let fd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let region = Region::open(fd, Access::ReadWrite).unwrap();
    let mut steps = None;
    let leased = Leased::attach::<Failed>(region, |carver| {
        let (lease, words, waiting) = carve(carver)?;
        steps = Some(words);
        Ok((lease.with_holder(PROGRAM), Some(waiting)))
    });
    let leased = leased.unwrap();
    let mut guard = leased.lock().unwrap();
    let seed = seed.parse().unwrap();
    let mut model = Model::new(guard.take().unwrap(), PROGRAM, random_from(seed));
    let (steps, parent) = (steps.unwrap(), getppid());
    while getppid() == parent {
        for _ in 0..200 {
            match seed % 2 {
                0 => model.step(),
                _ => change_what_is_shared(&mut model.waiting),
            }
            steps.word(0).fetch_add(1, Relaxed);
        }
        model.end_quietly();
    }
}

/// Changes lists and counts that others have a part in, and little else.
fn change_what_is_shared(waiting: &mut Waiting) {
    let seats = &mut waiting.seats;
    let slots = [(); 2].map(|()| {
        let ticket = seats.next_ticket();
        let slot = seats.take_slot(PROGRAM, ticket).unwrap();
        seats.park(slot);
        slot
    });
    let Waiting {
        interests,
        polls,
        owners,
        ..
    } = waiting;
    let poll = polls.open().unwrap();
    let record = owners.insert(PROGRAM, poll).unwrap();
    // There may be as many interests as there may be.
    let registrations: Vec<u32> = (owners.of(OTHER).take(2))
        .filter_map(|other| {
            let key = Key::of_poll(other);
            let entry = Entry::of_poll(Kind::Registration, poll, key, 0, Interest::READABLE);
            let made = polls.insert(interests, entry);
            assert!(made.is_some() || interests.len() == INTERESTS);
            made
        })
        .collect();
    let theirs = interests.of(Key::of(source(0)));
    let theirs = theirs.filter(|(_, entry)| entry.is(Kind::Registration));
    let mut ready: Vec<u32> = theirs.map(|(index, _)| index).take(4).collect();
    ready.extend(&registrations);
    for index in ready {
        polls.may_be_ready(interests, index);
    }
    for slot in slots {
        let thread = Entry::new(Key::of(source(1)), Kind::Thread, slot);
        if let Some(thread) = interests.insert(thread) {
            interests.remove(thread);
        }
    }
    for registration in registrations {
        polls.remove(interests, registration);
    }
    polls.close(interests, poll);
    owners.remove(record);
    for slot in slots {
        waiting.seats.give_slot(slot);
    }
}

#[derive(Debug)]
struct Failed;

impl From<RegionError> for Failed {
    fn from(_: RegionError) -> Failed {
        Failed
    }
}

impl From<OutOfMemory> for Failed {
    fn from(_: OutOfMemory) -> Failed {
        Failed
    }
}

struct Program(Child);

impl Program {
    fn start(region: OwnedFd, seed: u64) -> Program {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "shard::mend::tests::processes::a_program_that_changes_things",
                "--nocapture",
            ])
            .env(SEED, seed.to_string())
            .stdin(region)
            .stdout(Stdio::null())
            .spawn();
        Program(child.unwrap())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_others_wait_for_is_there_wherever_a_program_was_killed() {
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut random = random_from(seed);
    let region = Region::create("toehold-test", region_len()).unwrap();
    let fd = region.fd().unwrap().try_clone_to_owned().unwrap();
    let (lease, steps, waiting) = carve(&mut Carver::new(region).unwrap()).unwrap();
    let mut model = Model::new(waiting, OTHER, random_from(seed + 1));
    for round in 0..400 {
        // The other one's turn, which is not killed.
        (0..20).for_each(|_| model.step());
        model.check();
        steps.word(0).store(0, Relaxed);
        let until = 1 + (random() % 500) as u32;
        let mut program = Program::start(fd.try_clone().unwrap(), random());
        while steps.word(0).load(Relaxed) < until {
            assert!(program.0.try_wait().unwrap().is_none(), "round {round}");
            std::hint::spin_loop();
        }
        (0..random() % 1000).for_each(|_| std::hint::spin_loop());
        drop(program);
        assert!(lease.seize(PROGRAM));
        model.waiting.mend();
        model.waiting.forget_process(PROGRAM);
        for number in (0..HOLDERS).filter(|number| number / 8 == u32::from(PROGRAM)) {
            model.waiting.holders.take(number);
        }
        model.check_mended();
        lease.release();
    }
    model.end();
    assert_eq!(model.waiting.lengths(), [0; 4]);
}
