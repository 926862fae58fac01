import subprocess,os,json,time,random,signal
from srv import *
async def h(s,m,p,hd,b,w): return ok()
s=Server(h).start()
N=20000
env={**os.environ,'NO_PROXY':'127.0.0.1'}
open('in','w').write(''.join('{"custom_id":"%d","url":"%s/%d"}\n'%(i,s.url,i) for i in range(N)))
for f in ('out','out.limits','out.mending'):
    if os.path.exists(f): os.remove(f)
p=subprocess.run(['./throttle','batch','in','-o','out'],env=env,capture_output=True); print(p.stderr)
lines=open('out','rb').read().split(b'\n')[:-1]
t0=time.time(); 
times=collections.Counter(); lost=0; st=collections.Counter()
for r in range(80):
    for i in range(5): 
        k=random.randrange(N)
        lines[k]=lines[k].replace(b'"status_code":200',b'"status_code":500')
    done={json.loads(l)['custom_id'] for l in lines if b'"status_code":200' in l}
    tail=lines[-1][:random.randrange(1,40)] if r%2 else b''
    open('out','wb').write(b'\n'.join(lines)+b'\n'+tail)
    q=subprocess.Popen(['./throttle','batch','in','-o','out'],env=env,stderr=subprocess.PIPE,stdout=subprocess.PIPE)
    d=random.uniform(0.0,0.16); time.sleep(d); alive=q.poll() is None
    q2=None
    if alive and r%3==0:
        q2=subprocess.run(['./throttle','batch','in','-o','out'],env=env,capture_output=True); st['second:%d'%q2.returncode]+=1
    if q.poll() is None: q.send_signal(9); 
    q.communicate(); st[q.returncode]+=1
    st['mending left']+=os.path.exists('out.mending')
    data=open('out','rb').read().split(b'\n')
    ids=[]; 
    for l in data[:-1]:
        ids.append(json.loads(l)['custom_id'])
    if len(ids)!=len(set(ids)): print('DOUBLE',r)
    if not done<=set(ids): print('LOST',r,d,len(done-set(ids)))
    # restore by a whole run
    f=subprocess.run(['./throttle','batch','in','-o','out','--summary','json'],env=env,capture_output=True)
    j=json.loads(f.stdout)
    lines=open('out','rb').read().split(b'\n')[:-1]
    if f.returncode or j['ok']!=N or len(lines)!=N: print('BAD',f.returncode,j,len(lines))
print(st)
