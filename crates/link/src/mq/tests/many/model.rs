//! Everything that may happen to a node with many peers, in any order, and that no frame is
//! slept over.

use std::os::fd::AsFd;
use std::time::Instant;

use super::{NODES, Star, is_readable, mac, send};
use crate::mq::bell;
use crate::mq::tests::{PATIENCE, next_ms, take};
use crate::random::Random;
use crate::{Link, TransmitError};

struct Model {
    star: Star,
    random: Random,
    /// Frames that were sent to the hub and not taken.
    owed: usize,
    /// Those whose rings the hub has found full.
    full: Vec<usize>,
    asleep: bool,
    /// Those at which the hub awaited room when it fell asleep.
    awaited: Vec<[u8; 6]>,
}

impl Model {
    fn new(seed: u64, nodes: usize) -> Model {
        let mut star = Star::new(nodes);
        (1..nodes).for_each(|number| star.join(number));
        Model {
            star,
            random: Random::new(seed),
            owed: 0,
            full: Vec::new(),
            asleep: false,
            awaited: Vec::new(),
        }
    }

    fn step(&mut self) {
        match self.random.below(200) {
            0..40 => self.some_send(),
            40..80 => self.look(),
            80..130 => self.fall_asleep(),
            130..170 => self.wake_up(),
            170..182 => self.hub_sends(),
            182..192 => self.one_takes(),
            192..196 => self.lie(),
            _ => self.come_or_go(),
        }
    }

    fn any(&mut self) -> usize {
        let numbers = self.star.numbers();
        numbers[self.random.below(numbers.len() as u64) as usize]
    }

    /// One, or more than there is room for in the bell.
    fn some_send(&mut self) {
        let senders = if self.random.below(10) == 0 { 24 } else { 1 };
        for _ in 0..senders {
            let number = self.any();
            if send(self.star.other(number), mac(0), b"data").is_ok() {
                self.owed += 1;
                assert!(
                    !self.asleep || is_readable(&self.star.hub),
                    "{number} was slept over"
                );
            }
        }
    }

    /// The holder of the lease looks, also while a process sleeps for the node.
    fn look(&mut self) {
        for _ in 0..self.random.below(700) {
            let budget = 1 + self.random.below(8) as usize;
            self.owed -= self.star.hub.port.receive(0, budget, &mut |_| {});
        }
    }

    fn fall_asleep(&mut self) {
        if !self.asleep && self.star.hub.prepare_sleep() {
            assert!(self.owed == 0 || is_readable(&self.star.hub));
            self.asleep = true;
            let waits = self.star.hub.port.state.iter();
            let waits = waits.filter(|(_, record)| record.wanted != 0);
            self.awaited = waits.map(|(_, record)| record.mac()).collect();
        }
    }

    fn wake_up(&mut self) {
        if std::mem::take(&mut self.asleep) {
            self.star.hub.port.finish_sleep(0);
        }
    }

    /// A frame to one of them, or all that there is room for.
    fn hub_sends(&mut self) {
        let number = self.any();
        let fill = self.random.below(2) == 0;
        loop {
            match send(&mut self.star.hub, mac(number), &[7; 1000]) {
                Ok(()) if fill => {}
                Ok(()) => return,
                Err(error) => {
                    assert_eq!(error, TransmitError::Full);
                    return self.full.push(number);
                }
            }
        }
    }

    /// Room that the hub waits for wakes it.
    fn one_takes(&mut self) {
        let number = match self.full.pop() {
            Some(number) if self.star.is_there(number) => number,
            _ => self.any(),
        };
        let took = !take(self.star.other(number)).is_empty();
        if took && self.asleep && self.awaited.contains(&mac(number)) {
            assert!(is_readable(&self.star.hub), "room at {number} was slept over");
        }
    }

    /// A peer rings in the name of another peer, or of none.
    fn lie(&mut self) {
        let number = self.any();
        let said = self.random.below(2 * NODES as u64) as u16;
        let mapping = self.star.other(number).port.mappings.get(0, 1);
        bell::ring(mapping.unwrap().doorbell.as_fd(), said);
    }

    fn come_or_go(&mut self) {
        let number = 1 + self.random.below(self.star.others.len() as u64 - 1) as usize;
        let there = self.star.numbers().len();
        if !self.star.is_there(number) {
            self.star.join(number);
            self.settle(there + 1);
        } else if there > 4 {
            self.star.others[number] = None;
            self.settle(there - 1);
        }
    }

    /// Until so many peers are known, and what those have sent that left is taken.
    fn settle(&mut self, peers: usize) {
        self.wake_up();
        let deadline = Instant::now() + PATIENCE;
        while self.star.hub.connected() != peers || self.owed != 0 {
            assert!(Instant::now() < deadline);
            self.owed -= self.star.hub.receive(next_ms(), 64, &mut |_| {});
        }
    }

    /// What the hub does until it sleeps and nothing wakes it.
    fn end(mut self) {
        self.wake_up();
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline);
            self.owed -= self.star.hub.port.receive(0, 64, &mut |_| {});
            if self.star.hub.prepare_sleep() {
                if !is_readable(&self.star.hub) {
                    break;
                }
                self.star.hub.port.finish_sleep(0);
            }
        }
        assert_eq!(self.owed, 0);
    }
}

/// With so many that they are many, and with so many that they are few at times.
#[test]
fn no_frame_is_slept_over() {
    for (seed, nodes) in [(1, 60), (2, 20), (3, 19), (4, 40)] {
        println!("seed {seed}");
        let mut model = Model::new(seed, nodes);
        (0..1500).for_each(|_| model.step());
        model.end();
    }
}
