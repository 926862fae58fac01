from hostile import *
s=Server(h).start(); U=s.url
now=int(time.time()*1000)
def case(name,content,rate,t=20,n=3):
    clean(); reqs([{"custom_id":str(i),"url":"%s/%d"%(U,i)} for i in range(n)])
    open('out.limits','wb').write(content)
    r=go('--rate',rate,t=t); print(name,'rc',r[0],'%.1fs'%r[3],r[1][:60],r[2][-200:].strip())
E=lambda at,to=U,costs={}: json.dumps({"at":at,"to":to,"costs":costs}).encode()+b'\n'
case('empty',b'','3/2s')
case('huge cost',E(now-100,costs={"requests":2**64-1})*3,'20/2s')
case('huge cost tokens',E(now-100,costs={"tokens":2**64-1})*3,'20 tokens/2s')
case('neg at',b'{"at":-5,"to":"x","costs":{}}\n','20/2s')
case('bad to',E(now,to="data:x")+E(now,to="")+E(now,to="http://\0")+E(now,to="null"),'20/2s')
case('binary',os.urandom(100000),'20/2s')
case('one long line',b'x'*50_000_000,'20/2s')
case('future day x3',E(now+86400_000)*3,'3/2s')
case('future again (same file)',open('out.limits','rb').read(),'3/2s')
print('future entries left:',sum(1 for l in open('out.limits','rb') if json.loads(l)['at']>time.time()*1000+1000))
case('zero',b'\0'*4096,'20/2s')
clean(); os.mkdir('out.limits'); print(go('--rate','3/2s')[:3]); os.rmdir('out.limits')
# stdin: SIGINT while nothing comes
for sig in (signal.SIGINT,signal.SIGTERM):
    clean(); p=subprocess.Popen(['./throttle','batch','-','-o','out','--summary','json'],env=env,stdin=subprocess.PIPE,stdout=subprocess.PIPE,stderr=subprocess.PIPE)
    p.stdin.write(b'{"custom_id":"a","url":"%s/a"}\n'%U.encode()); p.stdin.flush(); time.sleep(0.3); p.send_signal(sig)
    try: p.wait(5); print('stdin',p.returncode,p.stdout.read()[:120],len(recs()))
    except subprocess.TimeoutExpired: print('HANGS'); p.kill()
# bad line in stream after good ones; closed stdout
clean(); p=subprocess.run(['./throttle','batch','-','-o','out','--summary','json'],env=env,input=b'{"custom_id":"a","url":"%s/slow/0.5"}\nnonsense\n'%U.encode(),capture_output=True); print(p.returncode,p.stdout,p.stderr,len(recs()))
# stream shorter than output
p=subprocess.run(['./throttle','batch','-','-o','out','--summary','json'],env=env,input=b'{"custom_id":"b","url":"%s/b"}\n'%U.encode(),capture_output=True); print(p.returncode,p.stdout,p.stderr[:200],len(recs()))
clean()
