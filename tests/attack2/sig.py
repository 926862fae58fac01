from hostile import *
import collections
st=collections.Counter(); seen=collections.Counter()
async def h2(s,m,p,hd,b,w):
    seen[p.split('?')[0]]+=1
    await asyncio.sleep(random.choice([0,0.01,0.1,0.4])); 
    x=random.random()
    if x<0.1: return ok(status=500)
    if x<0.15: return ok(status=404)
    return ok()
s=Server(h2).start(); U=s.url
for r in range(40):
    clean(); seen.clear(); N=300
    reqs([{"custom_id":str(i),"url":"%s/%d"%(U,i)} for i in range(N)])
    a=['--rate','200/s'] if r%2 else []
    if r%4>1: a+=['--ordered']
    p=subprocess.Popen(['./throttle','batch','in','-o','out','--summary','json','--attempts','1',*a],env=env,stdout=subprocess.PIPE,stderr=subprocess.PIPE)
    time.sleep(random.uniform(0.0,0.9))
    sig=[signal.SIGINT,signal.SIGTERM][r//4%2]; p.send_signal(sig)
    if r%5==0: time.sleep(random.uniform(0,0.1)); p.send_signal(sig)
    t0=time.time(); o,e=p.communicate(timeout=30); took=time.time()-t0
    st[(p.returncode)]+=1
    recs_=recs() if os.path.exists('out') else []
    if p.returncode in(130,0,1) and o:
        j=json.loads(o); okc=sum(1 for x in recs_ if x['response'] and 200<=x['response']['status_code']<300)
        if j['ok']!=okc or j['ok']+j['failed']!=len(recs_) or j['total']!=N or j['left']!=N-len(recs_) or (j['interrupted']!=(p.returncode==130)): print('MISMATCH',r,p.returncode,j,len(recs_),okc)
        lost=sum(seen.values())-len(recs_)
        if r%5 and lost: print('sent and not recorded',r,lost,p.returncode)
        if took>1.2: print('slow end',r,took)
    elif p.returncode>=0: print('no summary',r,p.returncode,o,e)
    if len(set(x['custom_id'] for x in recs_))!=len(recs_): print('dup')
print(st)
# full disk
import shutil
for kb in (8,20,33,64):
    clean(); seen.clear(); reqs([{"custom_id":str(i),"url":"%s/%d"%(U,i)} for i in range(1500)])
    for mode in ('ignore','default'):
        pre=(lambda: (signal.signal(signal.SIGXFSZ,signal.SIG_IGN) if mode=='ignore' else signal.signal(signal.SIGXFSZ,signal.SIG_DFL), resource.setrlimit(resource.RLIMIT_FSIZE,(kb*1024,kb*1024)),resource.setrlimit(resource.RLIMIT_CORE,(0,0))))
        for args in ([],['--rate','2000/s']):
            clean()
            p=subprocess.run(['./throttle','batch','in','-o','out','--summary','json','--attempts','1',*args],env=env,capture_output=True,preexec_fn=pre,timeout=60)
            d=open('out','rb').read(); whole=d.endswith(b'\n') or not d
            p2=subprocess.run(['./throttle','batch','in','-o','out','--summary','json','--attempts','4',*args],env=env,capture_output=True,timeout=60)
            rr=recs(); 
            print(kb,mode,args,'rc',p.returncode,p.stdout[:90],p.stderr.decode()[:130],'whole',whole,'then rc',p2.returncode,len(rr),len(set(x['custom_id'] for x in rr)))
clean()
