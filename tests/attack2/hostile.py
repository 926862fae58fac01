import subprocess,os,json,time,random,resource,signal,threading
from srv import *
env={**os.environ,'NO_PROXY':'127.0.0.1','KEY':'sekret-env-key'}
async def h(s,m,p,hd,b,w):
    if p.startswith('/endless'):
        w.write(b'HTTP/1.1 200 OK\r\n\r\n')
        try:
            while True: w.write(b'x'*65536); await w.drain()
        except Exception: return None
    if p.startswith('/idle'):
        w.write(b'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc'); await w.drain(); await asyncio.sleep(3600)
    if p.startswith('/trickle'):
        w.write(b'HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n')
        while True:
            w.write(b'a'); await w.drain(); await asyncio.sleep(0.2)
    if p.startswith('/idle429'): pass
    if p.startswith('/idl429'):
        w.write(b'HTTP/1.1 503 X\r\nContent-Length: 10\r\n\r\nabc'); await w.drain(); await asyncio.sleep(3600)
    if p.startswith('/nohead'): await asyncio.sleep(3600)
    if p.startswith('/trickhead'):
        w.write(b'HTTP/1.1 200 OK\r\n')
        while True: w.write(b'X-A: b\r\n'); await w.drain(); await asyncio.sleep(0.2)
    if p.startswith('/headers'): return ok(extra=''.join('X-%d: v\r\n'%i for i in range(1000)))
    if p.startswith('/bomb'): return ok(extra='X-A: '+'v'*5_000_000+'\r\n')
    if p.startswith('/99'): return ok(extra=''.join('X-%d: %s\r\n'%(i,'v'*3000) for i in range(90)))
    if p.startswith('/gzip'):
        import gzip; d=gzip.compress(b'\0'*200_000_000); return ok(d,extra='Content-Encoding: gzip\r\nContent-Type: application/json\r\n')
    if p.startswith('/big'):
        return ok(b'"'+b'x'*(15<<20)+b'"')
    if p.startswith('/slow'): await asyncio.sleep(float(p.split('/')[2])); return ok()
    if p.startswith('/redir'): return ok(status=302,extra='Location: http://127.0.0.1:1/x?token=sekret-hop\r\n')
    if p.startswith('/loop'): return ok(status=302,extra='Location: /loop?again=sekret-loop\r\n')
    if p.startswith('/binhead'): w.write(b'HTTP/1.1 200 OK\r\nX-B: \xff\xfe\x80\r\nContent-Length: 2\r\n\r\nok'); return b''
    if p.startswith('/deep'): return ok(b'['*100000+b']'*100000)
    if p.startswith('/nan'): return ok(b'{"a":1e400,"a":2,"b":"\\ud800"}')
    if p.startswith('/100'): return b'HTTP/1.1 100 Continue\r\n\r\n'*1000+ok()
    if p.startswith('/999'): return ok(status=999)
    if p.startswith('/101'): return b'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n'
    if p.startswith('/304'): return ok(status=304)
    return ok()
def reqs(lines): open('in','w').write('\n'.join(json.dumps(l) for l in lines)+'\n')
def clean():
    for f in ('out','out.limits','out.mending'):
        if os.path.exists(f): os.remove(f)
def go(*a,t=60):
    t0=time.time()
    p=subprocess.Popen(['./throttle','batch','in','-o','out','--summary','json',*a],env=env,stdout=subprocess.PIPE,stderr=subprocess.PIPE)
    peak=[0]
    def watch():
        while p.poll() is None:
            try:
                for l in open('/proc/%d/status'%p.pid):
                    if l.startswith('VmHWM'): peak[0]=max(peak[0],int(l.split()[1])//1024)
            except Exception: pass
            time.sleep(0.05)
    th=threading.Thread(target=watch); th.start()
    try: o,e=p.communicate(timeout=t)
    except subprocess.TimeoutExpired: p.kill(); o,e=p.communicate(); e+=b' TIMEOUT'
    th.join()
    return p.returncode,o.decode(),e.decode(),time.time()-t0,peak[0]
def recs(): return [json.loads(l) for l in open('out','rb').read().split(b'\n')[:-1]]
def short(r): 
    x=r['error'] or {}; return (r['custom_id'],(r['response'] or {}).get('status_code'),x.get('code'),x.get('message','')[:160],r['attempts'])
if __name__=='__main__':
    s=Server(h).start(); U=s.url
    for kind in ['endless','idle','trickle','idl429','nohead','trickhead','headers','bomb','99','gzip','redir','loop','binhead','deep','nan','100','999','101','304']:
        clean(); reqs([{"custom_id":kind,"url":"%s/%s?q=sekret-query"%(U,kind)}])
        rc,o,e,t,peak=go('--timeout','2s','--attempts','1','--header','Authorization: Bearer env:KEY',t=20)
        data=open('out','rb').read()
        print(kind,rc,'%.1fs'%t,'%dMiB'%peak,e.strip()[:150],[short(r) for r in recs()], 'SECRET' if b'sekret' in data or 'sekret' in e+o else '')
    clean(); reqs([{"custom_id":"u","url":"http://user:sekret-pw@127.0.0.1:1/x?sekret-q"},{"custom_id":"v","url":"http://sekret-u@nohost.invalid/x#sekret-frag"},{"custom_id":"w","url":"%s/redir"%U},{"custom_id":"p","url":"http://127.0.0.1:1/sekret-path"}])
    print(go('--attempts','1','--rate','100/s','--header','X-Key: env:KEY')[:4]); print(open('out').read()); print(open('out.limits').read())
