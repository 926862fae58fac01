from hostile import *
s=Server(h).start(); U=s.url
clean(); reqs([{"custom_id":str(i),"url":"%s/big/%d"%(U,i)} for i in range(64)])
r=go(t=100); print('64 in flight x 15MiB: rc',r[0],'peak',r[4],'MiB',r[1][:100],r[2][-200:])
clean(); reqs([{"custom_id":"h","url":"%s/slow/20"%U}]+[{"custom_id":str(i),"url":"%s/big/%d"%(U,i)} for i in range(200)])
r=go('--ordered','--in-flight','4',t=100); print('ordered, slow head, 200 x 15MiB: rc',r[0],'peak',r[4],'MiB',r[1][:100],r[2][-200:])
clean()
