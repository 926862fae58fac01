"""Findings of `throttle batch`: python3 batch.py PATH-OF-throttle, in an empty folder. Each line that begins with FAIL is one."""
import sys, os, subprocess, json, time, threading, signal, resource
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from srv import *
T = os.path.abspath(sys.argv[1]); env = {**os.environ, 'NO_PROXY': '127.0.0.1'}
async def h(s, m, p, hd, b, w):
    if p.startswith('/slow'): await asyncio.sleep(12)
    return ok(b'"' + b'x' * (8 << 20) + b'"') if p.startswith('/big') else ok()
U = Server(h).start().url
def clean():
    for f in ('out', 'out.limits'):
        if os.path.exists(f): os.remove(f)
def put(paths): open('in', 'w').write(''.join('{"custom_id":"%d","url":"%s%s"}\n' % (i, U, p) for i, p in enumerate(paths)))
def go(*a, **k): return subprocess.run([T, 'batch', 'in', '-o', 'out', '--summary', 'json', *a], env=env, capture_output=True, **k)
def tell(good, what): print('ok  ' if good else 'FAIL', what)
clean(); put(['/x'] * 9); go(); L = open('out', 'rb').read().splitlines(True)
for cut in (0, 3, 12, 13, 60):
    open('out', 'wb').write(b''.join(L[:5]) + L[5][:cut] + b'\0' * 200)
    r = go(); tell(r.returncode == 0, f'a tail of {cut} bytes and zeros: {r.returncode} {r.stderr.decode().strip()[:90]}')
clean(); put(['/x'] * 3)
open('out.limits', 'w').write(''.join(json.dumps({"at": int(time.time() * 1000) + 86_400_000, "to": U, "costs": {}}) + '\n' for _ in range(3)))
for run in range(3):
    if os.path.exists('out'): os.remove('out')
    time.sleep(4); t = time.time(); go('--rate', '3/2s'); took = time.time() - t
    tell(took < 1 or run == 0, f'run {run} after a clock was a day ahead for a while: {took:.1f} s, 4 s after the last one ended')
clean(); put(['/x'] * 500)
r = go(preexec_fn=lambda: (signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))))
tell(bool(r.stdout), f'full disk: {r.returncode}, summary {r.stdout!r}')
clean(); put(['/slow'] + ['/big'] * 150)
p = subprocess.Popen([T, 'batch', 'in', '-o', 'out', '--ordered', '--in-flight', '4'], env=env, stderr=subprocess.PIPE); peak = 0
while p.poll() is None:
    try: peak = max([peak] + [int(l.split()[1]) >> 10 for l in open(f'/proc/{p.pid}/status') if l.startswith('VmHWM')])
    except OSError: pass
    time.sleep(0.1)
tell(peak < 500, f'--ordered, one slow at the head, 150 answers of 8 MiB behind it: {peak} MiB'); clean()
