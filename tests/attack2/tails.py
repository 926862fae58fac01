import subprocess,os,json
from kill import *
async def h(s,m,p,hd,b,w): return ok('é😀'.encode())
s=Server(h).start()
N=20
open('in','w').write(''.join('{"custom_id":"é%d","url":"%s/%d"}\n'%(i,s.url,i) for i in range(N)))
def go(*a,inp='in'):
    p=subprocess.run(['./throttle','batch',inp,'-o','out',*a],capture_output=True,env={**os.environ,'NO_PROXY':'127.0.0.1'}); return p.returncode,p.stderr.decode()
def clean():
    for f in ('out','out.limits','out.mending'):
        if os.path.exists(f): os.remove(f)
clean(); print(go()); whole=open('out','rb').read(); L=whole.split(b'\n')
first=b'\n'.join(L[:5])+b'\n'; line=L[5]
def case(name,content,mending=None,expect_sent=None):
    clean(); open('out','wb').write(content); 
    if mending is not None: open('out.mending','wb').write(mending)
    n0=len(s.log); rc,e=go(); ids=[]; bad=0
    for l in open('out','rb').read().split(b'\n')[:-1]:
        try: ids.append(json.loads(l)['custom_id'])
        except Exception: bad+=1
    sent=len(s.log)-n0
    good = rc==0 and len(ids)==N and len(set(ids))==N and bad==0
    if not good: print('FAIL',name,rc,e.strip()[:200],len(ids),len(set(ids)),bad,'sent',sent)
    return good
fails=sum(not case('cut %d'%k,first+line[:k]) for k in range(0,len(line)+1))
print('cuts',len(line)+1,'fails',fails)
case('whole without newline',first+line)
case('zeros',first+b'\0'*100)
case('one zero',first+b'\0')
for k in (3,12,13,14,40): case('cut %d+zeros'%k,first+line[:k]+b'\0'*300)
case('zeros then newline',first+b'\0'*50+b'\n')
case('zeros whole file',b'\0'*4096)
case('mending there',first+line[:30],mending=b'garbage')
case('crlf',first.replace(b'\n',b'\r\n'))
case('bom',b'\xef\xbb\xbf'+first)
# transient record in the middle -> rewrite, with torn tail and .mending
tr=line.replace(b'"status_code":200',b'"status_code":500')
case('transient+torn+mending',b'\n'.join([L[0],tr,L[2]])+b'\n'+L[3][:50],mending=b'x'*10000)
case('transient last, no newline',first+tr)
case('transient+whole without newline',tr+b'\n'+L[3])
