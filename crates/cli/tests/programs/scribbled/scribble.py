"""scribble.py PID WRITES SEED HOW: writes nonsense to touched pages of the shared memory of a process's node, through
/proc/PID/mem. HOW: bytes, bits. Ends early when the process does."""
import random, re, sys, time

pid, writes, how = int(sys.argv[1]), int(sys.argv[2]), sys.argv[4]
random.seed(int(sys.argv[3]))
regions = []
for line in open(f"/proc/{pid}/maps"):
    found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-s.*memfd:(toehold-\S+)", line)
    if found and "usage" not in found[3]:
        regions.append((int(found[1], 16), int(found[2], 16)))
if not regions:
    sys.exit("the program maps no memory of a node")
pages = []
with open(f"/proc/{pid}/pagemap", "rb") as pagemap:
    for begin, end in regions:
        for page in range(begin, end, 4096):
            pagemap.seek(page // 4096 * 8)
            if int.from_bytes(pagemap.read(8), "little") >> 62:
                pages.append(page)
print(len(pages), "pages")
try:
    memory = open(f"/proc/{pid}/mem", "r+b", buffering=0)
    for number in range(writes):
        at = random.choice(pages) + random.randrange(0, 4096, 8)
        memory.seek(at)
        if how == "bits":
            word = int.from_bytes(memory.read(8), "little") ^ 1 << random.randrange(64)
            what = word.to_bytes(8, "little")
        elif random.random() < 0.7:
            what = random.randbytes(random.choice([1, 2, 4, 8, 8, 64]))
        else:
            what = random.choice([b"\xff", b"\0"]) * random.choice([1, 2, 4, 8, 8, 64])
        memory.seek(at)
        memory.write(what)
        if number % 50 == 0:
            time.sleep(0.001)
except OSError as error:
    print("after", number, "writes:", error)
