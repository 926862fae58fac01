import subprocess,os,sys,time,json,random,signal,shutil
from srv import *
def strict(n,w,delay=0.0):
    acc=collections.deque(); st={'ref':0}
    async def h(s,m,p,hd,b,wr):
        t=time.monotonic()
        while acc and acc[0]<=t-w: acc.popleft()
        if delay: await asyncio.sleep(random.random()*delay)
        if len(acc)>=n: st['ref']+=1; return ok(b'no',429)
        acc.append(t); return ok()
    s=Server(h).start(); s.st=st; return s
def run(args,sleep):
    p=subprocess.Popen(['./throttle','batch']+args,stdout=subprocess.DEVNULL,stderr=subprocess.PIPE,env={**os.environ,'NO_PROXY':'127.0.0.1'})
    time.sleep(sleep); p.send_signal(9); _,e=p.communicate(); return p.returncode,e
def scenario(name,rates,n,w,rounds,sleeps,delay=0.0,cost='',corrupt=None,clock=None):
    for f in ('in','out','out.limits','out.mending','out.limits.new'):
        if os.path.exists(f): os.remove(f)
    s=strict(n,w,delay)
    open('in','w').write(''.join('{"custom_id":"%d","url":"%s/%d"%s}\n'%(i,s.url,i,cost) for i in range(1000)))
    a=['in','-o','out']+sum((['--rate',r] for r in rates),[])
    errs=set()
    for i in range(rounds):
        rc,e=run(a,sleeps(i))
        if rc!=-9: errs.add((rc,e.decode()[-200:]))
        if corrupt: corrupt(i)
    ts=[t for t,_,_ in s.log]; ids=[json.loads(l)['custom_id'] for l in open('out','rb').read().split(b'\n')[:-1]]
    paths=collections.Counter(p for _,p,_ in s.log)
    print(name,'| arrivals',len(ts),'max in',w,'s:',maxin(ts,w),'of',n,'| refused',s.st['ref'],'| doubled ids',len(ids)-len(set(ids)),'max sends of one',max(paths.values()) if paths else 0,'errs',errs,flush=True)
if __name__=='__main__':
    scenario('1s kills',['20/2s'],20,2,10,lambda i:1)
    scenario('random kills',['20/2s'],20,2,25,lambda i:random.random()*0.7)
    scenario('slow answers',['20/2s'],20,2,10,lambda i:0.6,delay=0.3)
    scenario('two rates',['20/2s','10/s burst 10'],20,2,8,lambda i:1)
    scenario('tokens',['2000 tokens/2s'],20,2,8,lambda i:1,cost=',"cost":{"tokens":100}')
    def tear(i):
        if os.path.exists('out.limits'):
            with open('out.limits','ab') as f: f.write([b'{"at":17',b'\0'*50,b'\xff\xfe\n{"at":99999999999999999,"to":"x","costs":{}}\n'][i%3])
    scenario('torn side file',['20/2s'],20,2,8,lambda i:0.8,corrupt=tear)
